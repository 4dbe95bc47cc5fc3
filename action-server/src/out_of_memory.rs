//! What the kernel does when memory runs out: whom it shall kill first, and whether it has.
//!
//! It counts its victims for the server's own control group, which in a container is the container's. Where that is not to
//! be seen, nothing is ever told.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::LazyLock;

/// In thousandths of the memory there is. Whatever is run here is killed before a server that takes so much more, and is
/// not sacrificed for a glutton elsewhere on the machine, as it would be with the most of 1000.
const SOONER: i32 = 300;

const MOST: i32 = 1000;

/// The file with the count has six to eight short lines.
const COUNTS_BYTES: usize = 512;

/// Kept open: another look is one system call.
static COUNTS: LazyLock<Option<File>> = LazyLock::new(|| {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    places(&groups).into_iter().filter_map(|place| File::open(place).ok()).find(|file| count(file).is_some())
});

/// The kernel's victims, and how many of them were noticed.
pub(crate) struct Victims {
    noticed: u64,
}

impl Victims {
    /// Those that come from now on.
    pub(crate) fn from_now_on() -> Self {
        Self { noticed: count_now() }
    }

    /// Whether there are any that were not noticed before.
    pub(crate) fn are_new(&mut self) -> bool {
        let now = count_now();
        now > std::mem::replace(&mut self.noticed, now)
    }
}

/// Makes a child of this process, and what will come of it, likelier victims than this process.
pub(crate) fn prefer_as_victim(pid: i32) {
    static SCORE: LazyLock<String> = LazyLock::new(|| {
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        (own.trim().parse().unwrap_or(0) + SOONER).min(MOST).to_string()
    });
    // It may have ended, or be another user's: then it is as likely as we are.
    _ = fs::write(format!("/proc/{pid}/oom_score_adj"), SCORE.as_str());
}

fn count_now() -> u64 {
    COUNTS.as_ref().and_then(count).unwrap_or(0)
}

fn count(file: &File) -> Option<u64> {
    let mut text = [0; COUNTS_BYTES];
    let length = file.read_at(&mut text, 0).ok()?;
    count_in(std::str::from_utf8(text.get(..length)?).ok()?)
}

fn count_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Where the count may be, by what the system says of our groups. A container sees its own group at the root.
fn places(groups: &str) -> Vec<String> {
    let mut places = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.events"),
            _ if controllers.split(',').any(|each| each == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.oom_control")
            }
            _ => continue,
        };
        places.push(format!("{root}{}/{file}", path.trim_end_matches('/')));
        places.push(format!("{root}/{file}"));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_looked_for_in_both_versions() {
        let groups = "9:name=systemd:/docker/1\n4:cpu,memory:/docker/1\n0::/\n";
        let expected = [
            "/sys/fs/cgroup/memory/docker/1/memory.oom_control",
            "/sys/fs/cgroup/memory/memory.oom_control",
            "/sys/fs/cgroup/memory.events",
            "/sys/fs/cgroup/memory.events",
        ];
        assert_eq!(places(groups), expected);
    }

    #[test]
    fn both_versions_are_read() {
        assert_eq!(count_in("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(count_in("low 0\nmax 17\noom 2\noom_kill 1\noom_group_kill 0\n"), Some(1));
        assert_eq!(count_in("oom_kill_disable 0\n"), None);
    }

    #[test]
    fn a_child_is_killed_before_us() {
        let score = |pid: u32| -> i32 {
            fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
        };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        prefer_as_victim(child.id().cast_signed());
        let expected = (score(std::process::id()) + SOONER).min(MOST);
        let found = score(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, expected);
    }
}
