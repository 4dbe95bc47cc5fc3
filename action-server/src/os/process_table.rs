//! Lists the running processes from `/proc`. The list is empty where `/proc` is not mounted.

use std::fs;

/// A process as `/proc/PID/stat` describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// It has exited, and its parent has not waited for it yet.
    pub(crate) is_zombie: bool,
}

/// Lists all processes.
pub(crate) fn scan() -> Vec<ProcessStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| parse_stat(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// Lists the children of `parent`, including zombies.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    scan()
        .into_iter()
        .filter(|process| process.parent == parent)
        .map(|process| process.pid)
        .collect()
}

/// Parses `PID (NAME) STATE PARENT GROUP …`. The name may contain any bytes, including parentheses.
fn parse_stat(pid: i32, stat: &[u8]) -> Option<ProcessStat> {
    let (_, after_name) =
        stat.split_at_checked(stat.iter().rposition(|&byte| byte == b')')? + 1)?;
    let mut fields = std::str::from_utf8(after_name)
        .ok()?
        .split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    Some(ProcessStat {
        pid,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        is_zombie,
    })
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn parent_is_correct_when_the_name_looks_like_a_stat_line() {
        let stat = |line: &[u8]| parse_stat(7, line);
        let process = ProcessStat {
            pid: 7,
            parent: 42,
            group: 43,
            is_zombie: true,
        };
        assert_eq!(stat(b"7 (a) S 1 (b) Z 42 43 7 0"), Some(process));
        assert_eq!(
            stat(b"7 (sh) S 1 7 7 0").map(|process| process.parent),
            Some(1)
        );
    }

    #[test]
    fn stat_is_rejected_when_it_is_cut_short() {
        assert_eq!(parse_stat(7, b"7 (a"), None);
        assert_eq!(parse_stat(7, b""), None);
    }

    #[test]
    fn scan_lists_this_process_with_its_parent() {
        let own = std::process::id().cast_signed();
        let parent = std::os::unix::process::parent_id().cast_signed();
        assert!(
            scan()
                .iter()
                .any(|each| each.pid == own && each.parent == parent)
        );
    }

    #[test]
    fn child_is_listed_until_it_is_reaped() {
        let own = std::process::id().cast_signed();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id().cast_signed();
        assert!(children_of(own).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children_of(own).contains(&pid));
    }

    #[test]
    fn zombie_is_listed_with_its_parent_until_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        let exited = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(Pid::from_raw(pid)), exited).unwrap();
        let zombie = scan()
            .into_iter()
            .find(|process| process.pid == pid)
            .unwrap();
        assert_eq!(
            (zombie.parent, zombie.is_zombie),
            (std::process::id().cast_signed(), true)
        );
        child.wait().unwrap();
    }
}
