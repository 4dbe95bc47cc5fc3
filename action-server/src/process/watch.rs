//! The life of one process: read it, wait for it, end it when that is asked. A task of its own, which no lost connection
//! ends; it ends with the process, or with the server, and gives it exactly one exit.

use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use std::{future, io};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use protocol::sandbox_api::{ExitReason, ProcessExit, ProcessUsage};
use tokio::process::{Child, ChildStderr, ChildStdout};
use tokio_util::sync::CancellationToken;

use super::Process;
use super::output_pipe::OutputPipe;
use crate::ledger::Held;
use crate::os::children::OwnChild;
use crate::os::out_of_memory::OomKillCounter;

/// A process that has just been started.
pub(super) struct Watched {
    pub(super) process: Arc<Process>,
    pub(super) child: OwnChild,
    pub(super) timeout: Option<Duration>,
    /// The end of the server.
    pub(super) stop: CancellationToken,
}

/// `ended` is told when the process has its exit.
pub(super) async fn watch(watched: Watched, ended: impl FnOnce(Held)) {
    let Watched { process, mut child, timeout, stop } = watched;
    let mut oom_kills = OomKillCounter::start();
    let mut stdout = OutputPipe::new(child.child.stdout.take(), Arc::clone(&process.stdout));
    let mut stderr = OutputPipe::new(child.child.stderr.take(), Arc::clone(&process.stderr));
    let mut exit = until_exit(&process, &mut child.child, timeout, &mut stdout, &mut stderr).await;
    exit.out_of_memory = oom_kills.has_increased();
    // All that it wrote itself is in the pipes now.
    stdout.read_rest();
    stderr.read_rest();
    process.stdin.close();
    drop(child);
    ended(process.end(exit));
    drop(process);
    tokio::select! {
        _ = async { tokio::join!(stdout.drain(), stderr.drain()) } => {}
        () = stop.cancelled() => {}
    }
}

async fn until_exit(
    process: &Arc<Process>,
    child: &mut Child,
    timeout: Option<Duration>,
    stdout: &mut OutputPipe<ChildStdout>,
    stderr: &mut OutputPipe<ChildStderr>,
) -> ProcessExit {
    let mut deadline = pin!(async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => future::pending().await,
        }
    });
    let (mut reason, mut killing) = (ExitReason::Exited, None);
    let (status, usage) = loop {
        let why = tokio::select! {
            () = stdout.read() => None,
            () = stderr.read() => None,
            ended = wait(child) => break ended,
            () = process.kill.cancelled(), if killing.is_none() => Some(ExitReason::Killed),
            () = &mut deadline, if killing.is_none() => Some(ExitReason::TimedOut),
        };
        let Some(why) = why else {
            process.note_progress();
            continue;
        };
        reason = why;
        let process = Arc::clone(process);
        killing = Some(tokio::task::spawn_blocking(move || process.tree.kill()));
    };
    process.tree.set_root_reaped();
    if let Some(killing) = killing {
        // The exit tells that nothing of it is left.
        _ = killing.await;
    }
    exit_of(status, reason, usage)
}

/// What is told of a process that was waited for.
pub(crate) fn exit_of(
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
            error: Some(format!("waiting for the process: {error}")),
            out_of_memory: false,
            usage: None,
        },
    }
}

/// Waits for the process and tells what it used: what waiting for it added to what all children used. Nothing else of this
/// thread is waited for in between.
async fn wait(child: &mut Child) -> (io::Result<ExitStatus>, Option<ProcessUsage>) {
    let mut waiting = pin!(child.wait());
    future::poll_fn(|context| {
        let before = used_by_children();
        waiting.as_mut().poll(context).map(|status| {
            let usage = before.zip(used_by_children()).map(|(before, after)| ProcessUsage {
                user_us: after.user_us.saturating_sub(before.user_us),
                system_us: after.system_us.saturating_sub(before.system_us),
            });
            (status, usage)
        })
    })
    .await
}

fn used_by_children() -> Option<ProcessUsage> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    Some(ProcessUsage {
        user_us: usage.user_time().num_microseconds().cast_unsigned(),
        system_us: usage.system_time().num_microseconds().cast_unsigned(),
    })
}
