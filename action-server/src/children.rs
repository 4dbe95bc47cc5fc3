//! Whose child a process is, from `/proc`. Finds nothing where `/proc` is not mounted.

use std::fs;

use nix::unistd::Pid;

/// The children of `parent`, dead ones that nobody has waited for included.
pub(crate) fn of(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| parent_of(*pid) == Some(parent.as_raw()))
        .map(Pid::from_raw)
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `PID (NAME) STATE PARENT …`; the name may hold blanks and brackets, what follows it does not.
fn parent_in(stat: &str) -> Option<i32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_do_not_confuse() {
        assert_eq!(parent_in("7 (a) S 1 (b) R 42 7 7 0"), Some(42));
        assert_eq!(parent_in("7 (sh) S 1 7 7 0"), Some(1));
        assert_eq!(parent_in(""), None);
    }

    #[test]
    fn a_child_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32);
        assert!(of(nix::unistd::getpid()).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!of(nix::unistd::getpid()).contains(&pid));
    }
}
