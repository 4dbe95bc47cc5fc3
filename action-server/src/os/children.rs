//! The children of this process: those it has started, and the orphans it has adopted as a
//! subreaper.
//!
//! A process has one set of children, so this is global state. If two tasks waited for the same
//! child, one would lose its exit code. Therefore every child of the server is started through
//! [`spawn`], and [`reap_adopted`] waits only for the others. Orphans are adopted by the main
//! thread, which lives as long as the server, so only its list of children is read.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::out_of_memory::raise_oom_score;
use super::process_table;

/// Buffer size that fits the pids of some dozens of children.
const CHILD_LIST_BYTES: usize = 256;

/// Pids of the children that [`spawn`] has started. Locked during a fork and while the list of
/// children is read, so that a child is never seen before it is registered. Never locked across an
/// await.
static OWN: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

fn own() -> MutexGuard<'static, HashSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that its owner waits for.
#[derive(Debug)]
pub(crate) struct OwnChild {
    pub(crate) child: Child,
    pid: i32,
}

impl OwnChild {
    /// Returns the process id, even after the child has exited.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        own().remove(&self.pid);
    }
}

/// Starts a child that [`reap_adopted`] does not wait for.
///
/// # Errors
/// As [`Command::spawn`].
pub(crate) fn spawn(command: &mut Command) -> io::Result<OwnChild> {
    let mut own = own();
    let child = command.spawn()?;
    let pid = child
        .id()
        .and_then(|pid| i32::try_from(pid).ok())
        .ok_or_else(|| io::Error::other("no process id"))?;
    own.insert(pid);
    raise_oom_score(pid);
    Ok(OwnChild { child, pid })
}

/// Reaps adopted orphans as they exit, until `stop` is cancelled. Must be called only once. Orphans
/// are only adopted if `PR_SET_CHILD_SUBREAPER` is set.
///
/// # Errors
/// SIGCHLD cannot be watched.
pub(crate) async fn reap_adopted(stop: CancellationToken) -> io::Result<()> {
    let mut child_exits = signal(SignalKind::child())?;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = child_exits.recv() => reap_exited(),
        }
    }
}

fn reap_exited() {
    let own = own();
    for pid in children_of_this_process()
        .into_iter()
        .filter(|pid| !own.contains(pid))
    {
        // WNOHANG skips an orphan that still runs.
        let _ = waitid(
            Id::Pid(Pid::from_raw(pid)),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG,
        );
    }
}

/// Returns the children that this process did not start.
pub(crate) fn adopted() -> Vec<i32> {
    let own = own();
    children_of_this_process()
        .into_iter()
        .filter(|pid| !own.contains(pid))
        .collect()
}

fn children_of_this_process() -> Vec<i32> {
    static LIST: LazyLock<ChildList> =
        LazyLock::new(|| ChildList::open(std::process::id().cast_signed()));
    LIST.read()
}

/// The list of a process's children. Keeps the file open, so that reading it again is one system
/// call.
#[derive(Debug)]
pub(crate) struct ChildList {
    pid: i32,
    file: Option<File>,
}

impl ChildList {
    pub(crate) fn open(pid: i32) -> Self {
        Self {
            pid,
            file: File::open(list_path(pid)).ok(),
        }
    }

    /// Returns the process whose children are listed.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn read(&self) -> Vec<i32> {
        let mut list = [0; CHILD_LIST_BYTES];
        match self.file.as_ref().map(|file| file.read_at(&mut list, 0)) {
            Some(Ok(length)) if length < list.len() => {
                parse(std::str::from_utf8(&list[..length]).unwrap_or_default())
            }
            _ => children_of(self.pid),
        }
    }
}

///
/// Returns the children of the main thread of `pid`, which are all children of a shell. Scans all
/// processes if the kernel does not provide the list.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    match fs::read_to_string(list_path(pid)) {
        Ok(list) => parse(&list),
        Err(_) => process_table::children_of(pid),
    }
}

fn list_path(pid: i32) -> String {
    format!("/proc/{pid}/task/{pid}/children")
}

fn parse(list: &str) -> Vec<i32> {
    list.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}
