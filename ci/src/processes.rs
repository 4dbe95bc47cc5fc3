//! The processes of this machine, read from /proc: to name what a test left running, and to end what a daemon left.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process. Its number alone may be used again by another; together with the start time it is one process for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// In clock ticks since the machine started.
    pub(crate) started: u64,
    executable: String,
    arguments: Vec<String>,
}

/// All processes that we may look at. One that ends while we look is not there.
pub(crate) fn all() -> Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").context("listing processes")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(Process::read).collect())
}

impl Process {
    /// None when it has ended.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let (parent, started) = (field(&stat, PARENT)?, field(&stat, START_TIME)?);
        let executable = fs::read_link(folder.join("exe")).unwrap_or_default().to_string_lossy().into_owned();
        let arguments = fs::read(folder.join("cmdline")).unwrap_or_default();
        let arguments =
            arguments.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned());
        Some(Self { pid, parent, started, executable, arguments: arguments.collect() })
    }

    /// Whether this process runs a program of one of those names, by its file or by its first argument.
    pub(crate) fn is_program(&self, names: &[&str]) -> bool {
        let first = self.arguments.first().map_or("", String::as_str);
        [&self.executable, first].into_iter().any(|path| names.contains(&program_name(path)))
    }

    /// Whether this process runs a program of that name, or one of its versions, unpacked as `NAME-HASH`.
    pub(crate) fn is_version_of(&self, name: &str) -> bool {
        let first = self.arguments.first().map_or("", String::as_str);
        [&self.executable, first].into_iter().any(|path| {
            program_name(path).strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    }

    /// Whether any of its arguments mentions `text`.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.arguments.iter().any(|argument| argument.contains(text))
    }

    /// How a person would look for it.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.pid, self.arguments.join(" ").trim_end())
    }

    /// Ends it at once, if it is still that process.
    pub(crate) fn kill(&self) {
        if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
            // Fails only if it has ended in between.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

/// The file's name; the kernel adds ` (deleted)` to a removed one and `memfd:` to one that was never on a disk.
fn program_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_prefix("memfd:").unwrap_or(name)
}

/// Places in `stat`, counted from one as its manual page does.
const PARENT: usize = 4;
const START_TIME: usize = 22;

/// Counted after the name, the second field, which is in parentheses and may contain anything.
fn field<T: FromStr>(stat: &str, place: usize) -> Option<T> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(place - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_there_under_our_own_name() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = all().unwrap().into_iter().find(|process| process.pid == own).unwrap();
        let name = std::env::current_exe().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        assert!(process.is_program(&[&name]));
        assert_eq!(Process::read(own), Some(process));
    }

    #[test]
    fn a_removed_program_keeps_its_name() {
        assert_eq!(program_name("/tmp/x/action-server (deleted)"), "action-server");
        assert_eq!(program_name("/memfd:action-server (deleted)"), "action-server");
    }

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_fields() {
        let fields: Vec<String> = (3..=25).map(|field| field.to_string()).collect();
        let stat = format!("1 (a ) b) {}", fields.join(" "));
        assert_eq!((field(&stat, PARENT), field(&stat, START_TIME)), (Some(4), Some(22)));
    }
}
