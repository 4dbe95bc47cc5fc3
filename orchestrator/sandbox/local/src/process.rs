//! A process of this host, identified by more than its id, so that another process with a reused id
//! is never signalled.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

/// Time for a server to terminate its processes (2 s for `SIGTERM` and 1 s for the rest), and for
/// the kernel to reap a killed one.
const TERMINATION_GRACE_PERIOD: Duration = Duration::from_secs(4);

/// The server's process, and its isolating parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerProcesses {
    /// The process that receives SIGTERM.
    #[serde(flatten)]
    pub(super) server: KnownProcess,
    /// Its parent, which isolates it and exits after it.
    #[serde(rename = "around", default, skip_serializing_if = "Option::is_none")]
    pub(super) isolator: Option<KnownProcess>,
}

impl ServerProcesses {
    /// Creates the record of a server without isolation, or of one whose process in the namespaces
    /// is not known yet.
    pub(super) fn from_process(server: KnownProcess) -> Self {
        Self {
            server,
            isolator: None,
        }
    }

    /// Terminates all of these processes.
    pub(super) async fn terminate(&self) -> io::Result<()> {
        self.server.terminate_tree().await?;
        match &self.isolator {
            Some(isolator) => isolator.wait_or_kill().await,
            None => Ok(()),
        }
    }
}

/// A process: an id, when it started, and under which kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownProcess {
    pub(super) pid: i32,
    /// In clock ticks since the kernel started.
    start_time_ticks: u64,
    kernel_boot_id: String,
}

impl KnownProcess {
    /// Returns the process that currently has this id.
    pub(super) fn with_pid(pid: i32) -> io::Result<Self> {
        let start_time_ticks = stat(pid)?.start_time_ticks;
        Ok(Self {
            pid,
            start_time_ticks,
            kernel_boot_id: kernel_boot_id()?,
        })
    }

    /// Whether it still runs.
    pub(super) fn is_alive(&self) -> bool {
        self.open().is_ok_and(|handle| handle.is_some())
    }

    /// Sends SIGTERM, then SIGKILL, and kills remaining descendants.
    pub(super) async fn terminate_tree(&self) -> io::Result<()> {
        let Some(handle) = self.open()? else {
            return Ok(());
        };
        let descendants = self.descendants()?;
        // On a blocking thread, for at most three grace periods: the runtime has no safe way to
        // wait for a pidfd.
        let exited = spawn_blocking(move || -> io::Result<bool> {
            let has_exited =
                signal_and_wait(&handle, Signal::TERM)? || signal_and_wait(&handle, Signal::KILL)?;
            Ok(has_exited && kill_all(&descendants)?)
        });
        require_exit(exited.await)
    }

    /// Waits until the process exits, and kills it if it does not.
    async fn wait_or_kill(&self) -> io::Result<()> {
        let Some(handle) = self.open()? else {
            return Ok(());
        };
        let exited = spawn_blocking(move || -> io::Result<bool> {
            Ok(wait(&handle, TERMINATION_GRACE_PERIOD)? || signal_and_wait(&handle, Signal::KILL)?)
        });
        require_exit(exited.await)
    }

    /// Opens a handle of this process. `None` if it has exited.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            other => other?,
        };
        // Compared after the handle was opened: from here on the id cannot be reused.
        let is_this = Self::with_pid(self.pid).is_ok_and(|found| found == *self);
        Ok(is_this.then_some(handle))
    }

    /// Returns its current descendants, parents first.
    pub(super) fn descendants(&self) -> io::Result<Vec<Self>> {
        let pids = std::fs::read_dir("/proc")?.flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        // A process that exits meanwhile is skipped.
        let all: Vec<(i32, Stat)> = pids
            .filter_map(|pid| Some((pid, stat(pid).ok()?)))
            .collect();
        let mut found = Vec::new();
        let mut parents = vec![self.pid];
        while let Some(parent) = parents.pop() {
            for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
                parents.push(*pid);
                let (start_time_ticks, kernel_boot_id) =
                    (stat.start_time_ticks, self.kernel_boot_id.clone());
                found.push(Self {
                    pid: *pid,
                    start_time_ticks,
                    kernel_boot_id,
                });
            }
        }
        Ok(found)
    }
}

/// Whether the process exited in time.
fn signal_and_wait(process: &OwnedFd, signal: Signal) -> io::Result<bool> {
    ignore_exited(pidfd_send_signal(process, signal))?;
    wait(process, TERMINATION_GRACE_PERIOD)
}

/// Whether all of them exited in time.
pub(super) fn kill_all(processes: &[KnownProcess]) -> io::Result<bool> {
    let mut handles = Vec::with_capacity(processes.len());
    for process in processes {
        if let Some(handle) = process.open()? {
            ignore_exited(pidfd_send_signal(&handle, Signal::KILL))?;
            handles.push(handle);
        }
    }
    let deadline = Instant::now() + TERMINATION_GRACE_PERIOD;
    for handle in &handles {
        if !wait(handle, deadline.saturating_duration_since(Instant::now()))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the process exited in time.
fn wait(process: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    Ok(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout))? > 0) // readable: it has exited
}

fn require_exit(exited: Result<io::Result<bool>, tokio::task::JoinError>) -> io::Result<()> {
    match exited.unwrap_or_else(|panic| Err(panic.into()))? {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it did not exit after SIGKILL",
        )),
    }
}

fn ignore_exited(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => Ok(other?),
    }
}

struct Stat {
    parent: i32,
    start_time_ticks: u64,
}

fn stat(pid: i32) -> io::Result<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat: {text:?}"),
        )
    })
}

/// The second field, the name, is in parentheses and may itself contain parentheses and spaces.
fn parse_stat(text: &str) -> Option<Stat> {
    let after_name = &text[text.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace(); // from the third: the state
    let parent = fields.nth(1)?.parse().ok()?; // the fourth
    let start_time_ticks = fields.nth(17)?.parse().ok()?; // the 22nd
    Some(Stat {
        parent,
        start_time_ticks,
    })
}

fn kernel_boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{KnownProcess, parse_stat};

    #[test]
    fn process_name_with_parentheses_does_not_shift_fields() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let stat = parse_stat(&format!("77 (a) R 1 (b) S {}", fields.join(" "))).unwrap();
        assert_eq!((stat.parent, stat.start_time_ticks), (4, 22));
        assert!(parse_stat("77 (sh").is_none());
    }

    #[tokio::test]
    async fn process_tree_is_terminated_unless_its_id_was_reused() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let known = KnownProcess::with_pid(child.id().try_into().unwrap()).unwrap();
        while known.descendants().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let sleeping = known.descendants().unwrap();

        let other = KnownProcess {
            start_time_ticks: known.start_time_ticks + 1,
            ..known.clone()
        };
        other.terminate_tree().await.unwrap();
        assert!(child.try_wait().unwrap().is_none(), "it is another process");

        known.terminate_tree().await.unwrap();
        child.wait().unwrap();
        for sleeping in sleeping {
            if let Some(handle) = sleeping.open().unwrap() {
                assert!(super::signal_and_wait(&handle, rustix::process::Signal::CONT).unwrap());
            }
        }
    }
}
