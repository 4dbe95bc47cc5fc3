//! Watches one process: reads its output, waits for its exit, and kills it on request. The task
//! does not depend on any connection. It ends with the process or the server, and reports exactly
//! one exit.
//!
//! Descendants may write after the process has exited, as in `exec > >(sed …)`. The exit is
//! reported when they have closed the pipes, or after a grace period: a daemon may never close
//! them.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use std::{future, io};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use protocol::sandbox_api::{ExitReason, OutputStream, ProcessExit, ProcessUsage};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Process;
use super::output_pipe::OutputPipe;
use crate::ledger::SpoolUsage;
use crate::os::children::OwnChild;
use crate::os::out_of_memory::OomKillCounter;
use crate::timeouts::sleep_until_timeout;

/// Maximum time without output from descendants until the exit is reported.
const QUIET_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Maximum time for all output of descendants until the exit is reported.
const OUTPUT_GRACE_PERIOD: Duration = Duration::from_secs(10);

/// A process that was just started.
pub(super) struct WatchedProcess {
    pub(super) process: Arc<Process>,
    pub(super) child: OwnChild,
    pub(super) timeout: Option<Duration>,
    /// Cancelled when the server shuts down.
    pub(super) stop: CancellationToken,
}

/// Runs until the pipes are closed. Calls `on_exit` when the process has exited and its output is
/// complete.
pub(super) async fn watch(watched: WatchedProcess, on_exit: impl FnOnce(SpoolUsage)) {
    let WatchedProcess {
        process,
        mut child,
        timeout,
        stop,
    } = watched;
    let mut oom_kills = OomKillCounter::start();
    let mut stdout = OutputPipe::new(child.child.stdout.take(), OutputStream::Stdout, &process);
    let mut stderr = OutputPipe::new(child.child.stderr.take(), OutputStream::Stderr, &process);
    let mut exit = read_until_exit(
        &process,
        &mut child.child,
        timeout,
        &mut stdout,
        &mut stderr,
    )
    .await;
    exit.out_of_memory = oom_kills.has_increased();
    process.stdin.close();
    drop(child);
    // The pipes contain everything that the process has written.
    stdout.read_rest();
    stderr.read_rest();
    if exit.reason == ExitReason::Exited {
        read_from_descendants(&process, &mut stdout, &mut stderr).await;
    }
    on_exit(process.set_exit(exit));
    drop(process);
    tokio::select! {
        _ = async { tokio::join!(stdout.drain(), stderr.drain()) } => {}
        () = stop.cancelled() => {}
    }
}

async fn read_until_exit(
    process: &Arc<Process>,
    child: &mut Child,
    timeout: Option<Duration>,
    stdout: &mut OutputPipe<ChildStdout>,
    stderr: &mut OutputPipe<ChildStderr>,
) -> ProcessExit {
    let mut deadline = pin!(sleep_until_timeout(timeout));
    let (mut reason, mut killing) = (ExitReason::Exited, None);
    let (status, usage) = loop {
        let kill_reason = tokio::select! {
            () = stdout.read() => None,
            () = stderr.read() => None,
            exited = wait(child) => break exited,
            () = process.kill.cancelled(), if killing.is_none() => Some(ExitReason::Killed),
            () = &mut deadline, if killing.is_none() => Some(ExitReason::TimedOut),
        };
        let Some(kill_reason) = kill_reason else {
            process.notify_progress();
            continue;
        };
        reason = kill_reason;
        let process = Arc::clone(process);
        killing = Some(tokio::task::spawn_blocking(move || process.tree.kill()));
    };
    process.tree.set_root_reaped();
    if let Some(killing) = killing {
        // The exit is reported after all processes of the tree have been killed.
        _ = killing.await;
    }
    to_process_exit(status, reason, usage)
}

/// Reads until all descendants have closed the pipes, or a grace period ends. Returns earlier if
/// the tree is killed.
async fn read_from_descendants(
    process: &Arc<Process>,
    stdout: &mut OutputPipe<ChildStdout>,
    stderr: &mut OutputPipe<ChildStderr>,
) {
    let reading = async {
        let mut time_left = OUTPUT_GRACE_PERIOD;
        while !(time_left.is_zero() || stdout.is_closed() && stderr.is_closed()) {
            process.notify_progress();
            // Does not count: a slow reader must not lose output.
            stdout.wait_for_room().await;
            stderr.wait_for_room().await;
            let started = Instant::now();
            tokio::select! {
                biased;
                () = stdout.read() => {}
                () = stderr.read() => {}
                () = sleep(QUIET_GRACE_PERIOD.min(time_left)) => return,
            }
            time_left = time_left.saturating_sub(started.elapsed());
        }
    };
    tokio::select! {
        biased;
        () = process.kill.cancelled() => {}
        () = reading => return,
    }
    let killed = Arc::clone(process);
    // Fails if the runtime shuts down, which kills all processes.
    _ = tokio::task::spawn_blocking(move || killed.tree.kill()).await;
    stdout.read_rest();
    stderr.read_rest();
}

/// Converts the exit status of a process.
pub(crate) fn to_process_exit(
    status: io::Result<ExitStatus>,
    reason: ExitReason,
    usage: Option<ProcessUsage>,
) -> ProcessExit {
    match status {
        Ok(status) => ProcessExit {
            code: status.code(),
            signal: status.signal(),
            reason,
            error: None,
            out_of_memory: false,
            usage,
        },
        Err(error) => ProcessExit {
            code: None,
            signal: None,
            reason: ExitReason::Failed,
            error: Some(format!("cannot wait for the process: {error}")),
            out_of_memory: false,
            usage: None,
        },
    }
}

/// Waits for the process and measures its resource usage: the increase of the usage of all children
/// while it is reaped. This thread reaps no other child in between.
async fn wait(child: &mut Child) -> (io::Result<ExitStatus>, Option<ProcessUsage>) {
    let mut waiting = pin!(child.wait());
    future::poll_fn(|context| {
        let before = children_usage();
        waiting.as_mut().poll(context).map(|status| {
            let usage = before
                .zip(children_usage())
                .map(|(before, after)| ProcessUsage {
                    user_us: after.user_us.saturating_sub(before.user_us),
                    system_us: after.system_us.saturating_sub(before.system_us),
                });
            (status, usage)
        })
    })
    .await
}

fn children_usage() -> Option<ProcessUsage> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    Some(ProcessUsage {
        user_us: usage.user_time().num_microseconds().cast_unsigned(),
        system_us: usage.system_time().num_microseconds().cast_unsigned(),
    })
}
