//! Determines which processes belong to a command, and kills them.
//!
//! They are the descendants of the shell that did not exist when the command started, and orphans
//! among them, which the server has adopted. Background processes of earlier commands and their
//! descendants are excluded. Only sends signals and reads `/proc`; it never waits.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::os::children::{self, ChildList};
use crate::os::process_table::{self, ProcessStat};
use crate::os::process_tree::SESSION_VARIABLE;

/// The processes that existed when a command started.
#[derive(Debug)]
pub(super) struct Baseline {
    shell: i32,
    session: String,
    /// Children of the shell and orphans of this server. Their descendants are excluded too.
    spared: HashSet<i32>,
}

impl Baseline {
    /// Must be called before the command is sent. Costs two small reads if nothing runs in the
    /// background.
    pub(super) fn capture(shell: &ChildList, session: &str) -> Self {
        let spared = shell
            .read()
            .into_iter()
            .chain(children::adopted())
            .collect();
        Self {
            shell: shell.pid(),
            session: session.to_owned(),
            spared,
        }
    }

    /// The baseline for the end of a session: no process is excluded.
    pub(super) fn empty(shell: i32, session: &str) -> Self {
        Self {
            shell,
            session: session.to_owned(),
            spared: HashSet::new(),
        }
    }

    /// Returns the pid of the session's shell.
    pub(super) fn shell(&self) -> i32 {
        self.shell
    }

    /// Kills the new processes, parents before children so that none is restarted. Returns whether
    /// there were any. Processes that are forked meanwhile are found by the next call.
    pub(super) fn kill_new(&self) -> bool {
        let new = self.new_processes();
        new.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
        !new.is_empty()
    }

    fn new_processes(&self) -> Vec<i32> {
        let processes = process_table::scan();
        let mut below: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
        for process in &processes {
            below.entry(process.parent).or_default().push(*process);
        }
        let adopted: HashSet<i32> = children::adopted().into_iter().collect();
        let orphans = processes
            .iter()
            .filter(|each| adopted.contains(&each.pid) && self.owns_orphan(each.pid));
        let mut queue: VecDeque<ProcessStat> = below
            .get(&self.shell)
            .into_iter()
            .flatten()
            .chain(orphans)
            .copied()
            .collect();
        let mut new = Vec::new();
        while let Some(process) = queue.pop_front() {
            if self.spared.contains(&process.pid) {
                continue;
            }
            if !process.is_zombie {
                new.push(process.pid);
            }
            queue.extend(below.get(&process.pid).into_iter().flatten());
        }
        new
    }

    /// Returns whether an orphan belongs to this session and not to another one. A process with a
    /// cleared environment counts as ours, because nothing else in the server adopts orphans.
    fn owns_orphan(&self, pid: i32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let prefix = format!("{SESSION_VARIABLE}=");
        let session = environment
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        session.is_none_or(|session| session == self.session.as_bytes())
    }
}

/// Sends a signal to a process that may have exited.
pub(super) fn send(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Sends a signal to a process group that may have exited.
pub(super) fn send_to_group(group: i32, signal: Signal) {
    let _ = nix::sys::signal::killpg(Pid::from_raw(group), signal);
}

/// Returns whether a process ignores SIGINT, as after `trap '' INT`.
pub(super) fn ignores_interrupt(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask & (1 << (libc::SIGINT - 1)) != 0
}
