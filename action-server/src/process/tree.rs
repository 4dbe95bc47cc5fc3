//! Which processes came of one that was started here, and their end.
//!
//! They are those below it, those of its process group, and orphans, which this server adopts, that carry its mark in
//! their environment. One that has left its group, lost its parent and cleaned its environment is taken for a daemon,
//! which ends with the server. Looks at `/proc` and blocks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid};

use crate::shell::SESSION_VARIABLE;

/// How long a tree may take to be dead. One that waits for a dead disk takes longer, whatever is done.
const PATIENCE: Duration = Duration::from_millis(500);

/// Between two looks; the system tells nobody that a grandchild is dead.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A process that was started here, and what comes of it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: i32,
    mark: String,
    /// Its number may be another's from then on.
    is_buried: AtomicBool,
}

struct Listed {
    pid: i32,
    parent: i32,
    group: i32,
    is_dead: bool,
}

impl Tree {
    pub(crate) fn new(root: i32, mark: String) -> Self {
        Self { root, mark, is_buried: AtomicBool::new(false) }
    }

    pub(super) fn root(&self) -> i32 {
        self.root
    }

    /// To be called when the root was waited for.
    pub(crate) fn bury_root(&self) {
        self.is_buried.store(true, Ordering::Release);
    }

    /// Sends a signal to the root alone; tells whether it could still get one.
    pub(super) fn signal_root(&self, signal: Signal) -> bool {
        let is_there = !self.is_buried.load(Ordering::Acquire);
        if is_there {
            send(self.root, signal);
        }
        is_there
    }

    /// Sends a signal to all that live.
    pub(super) fn signal(&self, signal: Signal) {
        self.living(&mut HashSet::new()).into_iter().for_each(|pid| send(pid, signal));
    }

    /// Kills all, also what is started meanwhile.
    pub(crate) fn kill(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut met = HashSet::new();
        loop {
            // Looked at before any of them dies: below a dead parent they are not found again.
            let living = self.living(&mut met);
            if !self.is_buried.load(Ordering::Acquire) {
                // Where there is no /proc, this is all.
                _ = killpg(Pid::from_raw(self.root), Signal::SIGKILL);
            }
            if living.is_empty() || Instant::now() > deadline {
                return;
            }
            living.into_iter().for_each(|pid| send(pid, Signal::SIGKILL));
            sleep(LOOK_AGAIN);
        }
    }

    /// Parents before children. `met` are those of earlier looks: what they have started since is found below them.
    fn living(&self, met: &mut HashSet<i32>) -> Vec<i32> {
        let processes = list();
        let server = getpid().as_raw();
        let has_root = !self.is_buried.load(Ordering::Acquire);
        let is_root = |each: &Listed| {
            (has_root && (each.pid == self.root || each.group == self.root))
                || met.contains(&each.pid)
                || (each.parent == server && self.is_marked(each.pid))
        };
        let mut below: HashMap<i32, Vec<&Listed>> = HashMap::new();
        for process in &processes {
            below.entry(process.parent).or_default().push(process);
        }
        let mut queue: VecDeque<&Listed> = processes.iter().filter(|each| is_root(each)).collect();
        let (mut living, mut seen) = (Vec::new(), HashSet::new());
        while let Some(process) = queue.pop_front() {
            if process.pid == server || !seen.insert(process.pid) {
                continue;
            }
            queue.extend(below.get(&process.pid).into_iter().flatten());
            if !process.is_dead {
                living.push(process.pid);
            }
        }
        met.extend(&living);
        living
    }

    fn is_marked(&self, pid: i32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mark = format!("{SESSION_VARIABLE}={}", self.mark);
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    }
}

/// It may be gone.
fn send(pid: i32, signal: Signal) {
    _ = kill(Pid::from_raw(pid), signal);
}

fn list() -> Vec<Listed> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// `PID (NAME) STATE PARENT GROUP …`; the name may hold anything, also parentheses.
fn parse(pid: i32, stat: &[u8]) -> Option<Listed> {
    let (_, after_name) = stat.split_at_checked(stat.iter().rposition(|&byte| byte == b')')? + 1)?;
    let mut fields = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X");
    Some(Listed { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()?, is_dead })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_forge_a_parent() {
        let listed = parse(7, b"7 (a) S 1 (b) Z 42 43 7 0").unwrap();
        assert_eq!((listed.parent, listed.group, listed.is_dead), (42, 43, true));
        assert!(parse(7, b"7 (a").is_none());
    }
}
