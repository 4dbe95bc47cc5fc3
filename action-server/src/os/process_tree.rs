//! The tree of processes that a process of this server has started, and how it is signalled and
//! killed.
//!
//! It consists of the descendants of the root process, the members of its process group, and
//! adopted orphans whose environment contains the tree's id. A process that has left the group,
//! lost its parent and cleared its environment counts as a daemon, which ends with the server. All
//! functions read `/proc` and block.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpid};

use super::process_table::{self, ProcessStat};

/// Environment variable that holds the id of the session or process tree that a process belongs to.
pub(crate) const SESSION_VARIABLE: &str = "GLOVEBOX_SESSION";

/// Maximum time to wait for a killed tree to exit. A process in uninterruptible I/O may take
/// longer.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval between scans of a killed tree. The kernel does not report the exit of a grandchild.
const SCAN_INTERVAL: Duration = Duration::from_millis(2);

/// A process of this server and all processes that it has started.
#[derive(Debug)]
pub(crate) struct ProcessTree {
    root: i32,
    id: String,
    /// The kernel may reuse the root's pid from then on.
    is_root_reaped: AtomicBool,
}

impl ProcessTree {
    /// `id` is the value of [`SESSION_VARIABLE`] in the environment of the root process.
    pub(crate) fn new(root: i32, id: String) -> Self {
        Self {
            root,
            id,
            is_root_reaped: AtomicBool::new(false),
        }
    }

    pub(crate) fn root(&self) -> i32 {
        self.root
    }

    /// Must be called once the root process has been waited for.
    pub(crate) fn set_root_reaped(&self) {
        self.is_root_reaped.store(true, Ordering::Release);
    }

    /// Sends a signal to the root process only. Returns `false` if it has been reaped.
    pub(crate) fn signal_root(&self, signal: Signal) -> bool {
        let is_running = !self.is_root_reaped.load(Ordering::Acquire);
        if is_running {
            send(self.root, signal);
        }
        is_running
    }

    /// Sends a signal to all processes of the tree.
    pub(crate) fn signal(&self, signal: Signal) {
        self.running(&mut HashSet::new())
            .into_iter()
            .for_each(|pid| send(pid, signal));
    }

    /// Kills all processes of the tree, including those that are started meanwhile.
    pub(crate) fn kill(&self) {
        let deadline = Instant::now() + KILL_TIMEOUT;
        let mut seen = HashSet::new();
        loop {
            // Listed before any of them dies: the descendants of a dead parent cannot be found.
            let running = self.running(&mut seen);
            if !self.is_root_reaped.load(Ordering::Acquire) {
                // The only effect where `/proc` is not mounted.
                _ = killpg(Pid::from_raw(self.root), Signal::SIGKILL);
            }
            if running.is_empty() || Instant::now() > deadline {
                return;
            }
            running
                .into_iter()
                .for_each(|pid| send(pid, Signal::SIGKILL));
            sleep(SCAN_INTERVAL);
        }
    }

    /// Lists the running processes, parents before children. `seen` are those of earlier scans,
    /// whose descendants also belong to the tree.
    fn running(&self, seen: &mut HashSet<i32>) -> Vec<i32> {
        let processes = process_table::scan();
        let server = getpid().as_raw();
        let has_root = !self.is_root_reaped.load(Ordering::Acquire);
        let is_root = |each: &ProcessStat| {
            (has_root && (each.pid == self.root || each.group == self.root))
                || seen.contains(&each.pid)
                || (each.parent == server && self.has_id(each.pid))
        };
        let mut children: HashMap<i32, Vec<&ProcessStat>> = HashMap::new();
        for process in &processes {
            children.entry(process.parent).or_default().push(process);
        }
        let mut queue: VecDeque<&ProcessStat> =
            processes.iter().filter(|each| is_root(each)).collect();
        let (mut running, mut visited) = (Vec::new(), HashSet::new());
        while let Some(process) = queue.pop_front() {
            if process.pid == server || !visited.insert(process.pid) {
                continue;
            }
            queue.extend(children.get(&process.pid).into_iter().flatten());
            if !process.is_zombie {
                running.push(process.pid);
            }
        }
        seen.extend(&running);
        running
    }

    fn has_id(&self, pid: i32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let expected = format!("{SESSION_VARIABLE}={}", self.id);
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == expected.as_bytes())
    }
}

/// Sends a signal to a process that may have exited.
fn send(pid: i32, signal: Signal) {
    _ = kill(Pid::from_raw(pid), signal);
}
