//! Out-of-memory kills: makes the kernel prefer children over the server, and counts the kills.
//!
//! The kernel counts kills per control group. The server reads the counter of its own group, which
//! in a container is the container's. If the counter cannot be read, no kills are reported.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

/// Added to the `oom_score_adj` of children, in thousandths of the available memory: a child is
/// killed before a server that uses up to this much more. With [`MAX_SCORE`], the kernel would kill
/// children for another program that uses too much.
const CHILD_SCORE: i32 = 300;

const MAX_SCORE: i32 = 1000;

/// Buffer size for the file with the counter, which has six to eight short lines.
const COUNTER_BYTES: usize = 512;

/// The file with the counter. Kept open, so that reading it again is one system call.
static COUNTER: LazyLock<Option<File>> = LazyLock::new(|| {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    counter_paths(&groups)
        .into_iter()
        .filter_map(|path| File::open(path).ok())
        .find(|file| read_count(file).is_some())
});

/// Detects new out-of-memory kills.
pub(crate) struct OomKillCounter {
    last_count: u64,
}

impl OomKillCounter {
    /// Only kills after this call are reported.
    pub(crate) fn start() -> Self {
        Self {
            last_count: current_count(),
        }
    }

    /// Returns whether the kernel has killed a process since the last call.
    pub(crate) fn has_increased(&mut self) -> bool {
        let count = current_count();
        count > std::mem::replace(&mut self.last_count, count)
    }
}

/// Makes the kernel prefer a child and its descendants over the server when memory runs out.
pub(crate) fn raise_oom_score(pid: i32) {
    static SCORE: LazyLock<String> = LazyLock::new(|| {
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        (own.trim().parse().unwrap_or(0) + CHILD_SCORE)
            .min(MAX_SCORE)
            .to_string()
    });
    // Fails if the child has exited or belongs to another user. It then keeps the server's score.
    _ = fs::write(format!("/proc/{pid}/oom_score_adj"), SCORE.as_str());
}

fn current_count() -> u64 {
    COUNTER.as_ref().and_then(read_count).unwrap_or(0)
}

fn read_count(file: &File) -> Option<u64> {
    let mut text = [0; COUNTER_BYTES];
    let length = file.read_at(&mut text, 0).ok()?;
    parse_count(std::str::from_utf8(text.get(..length)?).ok()?)
}

fn parse_count(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Candidate paths of the counter for the contents of `/proc/self/cgroup`. A container sees its own
/// group at the root.
fn counter_paths(groups: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.events"),
            _ if controllers.split(',').any(|each| each == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.oom_control")
            }
            _ => continue,
        };
        paths.push(format!("{root}{}/{file}", path.trim_end_matches('/')));
        paths.push(format!("{root}/{file}"));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_paths_include_cgroup_v1_and_v2() {
        let groups = "9:name=systemd:/docker/1\n4:cpu,memory:/docker/1\n0::/\n";
        let expected = [
            "/sys/fs/cgroup/memory/docker/1/memory.oom_control",
            "/sys/fs/cgroup/memory/memory.oom_control",
            "/sys/fs/cgroup/memory.events",
            "/sys/fs/cgroup/memory.events",
        ];
        assert_eq!(counter_paths(groups), expected);
    }

    #[test]
    fn count_is_parsed_for_cgroup_v1_and_v2() {
        assert_eq!(
            parse_count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(
            parse_count("low 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n"),
            Some(1)
        );
        assert_eq!(parse_count("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn child_score_is_higher_than_the_server_s() {
        let score = |pid: u32| -> i32 {
            fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        raise_oom_score(child.id().cast_signed());
        let expected = (score(std::process::id()) + CHILD_SCORE).min(MAX_SCORE);
        let found = score(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, expected);
    }
}
