//! The children of this process: those it started, and the orphans it has adopted as a subreaper.
//!
//! A process has one set of children, so this is the one global of the shell. Two who wait for the same child is how exit
//! codes get lost; so whoever starts a child of this server does it through [`spawn`], and [`reap_adopted`] waits only
//! for the others. Orphans are adopted by the main thread, which lives as long as the server: its list is the one read.

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

use crate::out_of_memory::prefer_as_victim;

/// The list of some dozens of children.
const SHORT_BYTES: usize = 256;

/// Held for a fork and for a look at the list, never across an await: a child that is not registered yet must not be
/// seen.
static OWN: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

fn own() -> MutexGuard<'static, HashSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that someone waits for.
#[derive(Debug)]
pub(crate) struct OwnChild {
    /// To wait for it, to kill it.
    pub(crate) child: Child,
    pid: i32,
}

impl OwnChild {
    /// Its process id, also after it ended.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        own().remove(&self.pid);
    }
}

/// Starts a child that [`reap_adopted`] leaves alone.
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
    prefer_as_victim(pid);
    Ok(OwnChild { child, pid })
}

/// Buries the orphans that this process adopted, as they die, until `stop`. Call once; needs `PR_SET_CHILD_SUBREAPER`
/// to have any.
///
/// # Errors
/// SIGCHLD cannot be watched.
pub(crate) async fn reap_adopted(stop: CancellationToken) -> io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = deaths.recv() => reap_now(),
        }
    }
}

fn reap_now() {
    let own = own();
    for pid in of_this_process().into_iter().filter(|pid| !own.contains(pid)) {
        // One that lives is left alone; one that someone else buried is no matter.
        let _ = waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
    }
}

/// Children that this process did not start.
pub(super) fn adopted() -> Vec<i32> {
    let own = own();
    of_this_process().into_iter().filter(|pid| !own.contains(pid)).collect()
}

fn of_this_process() -> Vec<i32> {
    static LIST: LazyLock<ChildList> = LazyLock::new(|| ChildList::of(std::process::id().cast_signed()));
    LIST.read()
}

/// The list of a process's children, kept open: another look is one system call.
#[derive(Debug)]
pub(super) struct ChildList {
    pid: i32,
    file: Option<File>,
}

impl ChildList {
    pub(super) fn of(pid: i32) -> Self {
        Self { pid, file: File::open(path(pid)).ok() }
    }

    /// Whose list it is.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn read(&self) -> Vec<i32> {
        let mut list = [0; SHORT_BYTES];
        match self.file.as_ref().map(|file| file.read_at(&mut list, 0)) {
            Some(Ok(length)) if length < list.len() => {
                parse(std::str::from_utf8(&list[..length]).unwrap_or_default())
            }
            _ => of(self.pid),
        }
    }
}

/// The children of `pid`'s main thread: all there are for a shell. Where the kernel keeps no such list, a look at every
/// process.
pub(super) fn of(pid: i32) -> Vec<i32> {
    match fs::read_to_string(path(pid)) {
        Ok(list) => parse(&list),
        Err(_) => super::process_tree::scan()
            .iter()
            .filter(|each| each.parent == pid)
            .map(|each| each.pid)
            .collect(),
    }
}

fn path(pid: i32) -> String {
    format!("/proc/{pid}/task/{pid}/children")
}

fn parse(list: &str) -> Vec<i32> {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
