//! The processes of this machine from `/proc`, to report and kill those that a test or daemon left
//! running.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process. Its id may be reused by another one; id and start time together are unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// Start time in clock ticks since boot.
    pub(crate) started: u64,
    executable: String,
    arguments: Vec<String>,
}

/// Returns all readable processes. Skips those that exit meanwhile.
pub(crate) fn list() -> Result<Vec<ProcessEntry>> {
    let entries = fs::read_dir("/proc").context("cannot list processes")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(ProcessEntry::read).collect())
}

impl ProcessEntry {
    /// Reads a process. `None` if it has exited.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let (parent, started) = (field(&stat, PARENT)?, field(&stat, START_TIME)?);
        let executable = fs::read_link(folder.join("exe"))
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let arguments = fs::read(folder.join("cmdline")).unwrap_or_default();
        let arguments = arguments
            .split(|byte| *byte == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned());
        Some(Self {
            pid,
            parent,
            started,
            executable,
            arguments: arguments.collect(),
        })
    }

    /// Whether the executable or the first argument has one of `names`.
    pub(crate) fn is_program(&self, names: &[&str]) -> bool {
        let first = self.arguments.first().map_or("", String::as_str);
        [&self.executable, first]
            .into_iter()
            .any(|path| names.contains(&program_name(path)))
    }

    /// Whether the executable or the first argument is `name` or a version of it, unpacked as
    /// `NAME-HASH`.
    pub(crate) fn is_version_of(&self, name: &str) -> bool {
        let first = self.arguments.first().map_or("", String::as_str);
        [&self.executable, first].into_iter().any(|path| {
            program_name(path)
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    }

    /// Whether any argument contains `text`.
    pub(crate) fn has_argument_with(&self, text: &str) -> bool {
        self.arguments
            .iter()
            .any(|argument| argument.contains(text))
    }

    /// Formats the id and the command line.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.pid, self.arguments.join(" ").trim_end())
    }

    /// Sends SIGKILL if the id still belongs to this process.
    pub(crate) fn kill(&self) {
        if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
            // Fails only if the process has exited in between.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

/// Returns the file name without the kernel's marks: ` (deleted)` for a removed file and `memfd:`
/// for an anonymous one.
fn program_name(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_prefix("memfd:").unwrap_or(name)
}

/// Field numbers of `/proc/PID/stat`, counted from one as in proc(5).
const PARENT: usize = 4;
const START_TIME: usize = 22;

/// Parses a field. Skips the second field first, a name in parentheses that may contain any
/// character.
fn field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_listed_under_its_name() {
        let own = i32::try_from(std::process::id()).unwrap();
        let process = list()
            .unwrap()
            .into_iter()
            .find(|process| process.pid == own)
            .unwrap();
        let name = std::env::current_exe()
            .unwrap()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        assert!(process.is_program(&[&name]));
        assert_eq!(ProcessEntry::read(own), Some(process));
    }

    #[test]
    fn program_name_is_kept_when_file_was_removed() {
        assert_eq!(
            program_name("/tmp/x/action-server (deleted)"),
            "action-server"
        );
        assert_eq!(
            program_name("/memfd:action-server (deleted)"),
            "action-server"
        );
    }

    #[test]
    fn fields_are_parsed_when_name_has_parentheses() {
        let fields: Vec<String> = (3..=25).map(|field| field.to_string()).collect();
        let stat = format!("1 (a ) b) {}", fields.join(" "));
        assert_eq!(
            (field(&stat, PARENT), field(&stat, START_TIME)),
            (Some(4), Some(22))
        );
    }
}
