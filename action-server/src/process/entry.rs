//! The record of one process: its command line, its output, and its exit once it has ended.

use std::sync::Arc;

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::ProcessId;
use protocol::sandbox_api::{
    FrameError, OutputStream, ProcessExit, ProcessFrame, ProcessInfo, ProcessState, SignalScope,
};
use tokio::process::ChildStdin;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, SetOnce};
use tokio_util::sync::CancellationToken;

use super::error::ProcessError;
use super::readers::Readers;
use super::stdin::Stdin;
use crate::ledger::{LARGE_OUTPUT_BYTES, OutputPiece, Spool, SpoolStore, SpoolUsage};
use crate::os::process_tree::ProcessTree;

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Process {
    id: ProcessId,
    argv: Vec<String>,
    started_at_ms: u64,
    pub(super) tree: ProcessTree,
    pub(super) stdout: Arc<Spool>,
    pub(super) stderr: Arc<Spool>,
    pub(super) readers: Arc<Readers>,
    pub(super) stdin: Stdin,
    /// Cancelled to kill the process tree.
    pub(super) kill: CancellationToken,
    /// Notified after every change of the output or the exit.
    progress: Notify,
    /// Set once the output exceeds [`LARGE_OUTPUT_BYTES`].
    has_large_output: SetOnce<()>,
    /// Set after the output was closed.
    exit: SetOnce<EncodedExit>,
}

/// The exit of a process, also encoded as the last frame of its stream.
#[derive(Debug, Clone)]
struct EncodedExit {
    exit: ProcessExit,
    frame: Bytes,
}

/// How much of both streams a reader has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursors {
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
}

impl Cursors {
    pub(super) fn of(self, stream: OutputStream) -> u64 {
        match stream {
            OutputStream::Stdout => self.stdout,
            OutputStream::Stderr => self.stderr,
        }
    }
}

/// The next item for a reader.
pub(crate) enum ProcessProgress {
    /// Output, or a gap in it.
    Output(OutputStream, OutputPiece),
    /// All output was read, and the process has exited.
    Exited(Bytes),
    /// All output so far was read.
    Pending,
}

/// A process that has just been started.
pub(super) struct NewProcess {
    pub(super) id: ProcessId,
    pub(super) argv: Vec<String>,
    pub(super) at_ms: u64,
    pub(super) tree: ProcessTree,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) kill: CancellationToken,
}

impl Process {
    pub(super) fn new(started: NewProcess, spools: &SpoolStore) -> Self {
        let NewProcess {
            id,
            argv,
            at_ms,
            tree,
            stdin,
            kill,
        } = started;
        Self {
            id,
            argv,
            started_at_ms: at_ms,
            tree,
            stdout: Spool::new(spools),
            stderr: Spool::new(spools),
            readers: Arc::default(),
            stdin: Stdin::new(stdin),
            kill,
            progress: Notify::new(),
            has_large_output: SetOnce::new(),
            exit: SetOnce::new(),
        }
    }

    pub(crate) fn id(&self) -> &ProcessId {
        &self.id
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        let exit = self.exit.get().map(|exit| exit.exit.clone());
        ProcessInfo {
            id: self.id.clone(),
            pid: self.tree.root(),
            argv: self.argv.clone(),
            state: if exit.is_some() {
                ProcessState::Exited
            } else {
                ProcessState::Running
            },
            exit,
            started_at_ms: self.started_at_ms,
            stdout_bytes: self.stdout.end(),
            stderr_bytes: self.stderr.end(),
        }
    }

    /// Kills the process tree. The exit is still reported. No effect if the process has exited.
    pub(crate) fn kill(&self) {
        self.kill.cancel();
    }

    /// Sends a signal.
    pub(crate) async fn signal(
        self: &Arc<Self>,
        signal: Signal,
        scope: SignalScope,
    ) -> Result<(), ProcessError> {
        match scope {
            SignalScope::Process if self.tree.signal_root(signal) => {}
            SignalScope::Process => return Err(ProcessError::Ended(self.id.clone())),
            SignalScope::Tree => {
                let process = Arc::clone(self);
                // Fails if the runtime shuts down, which kills all processes.
                _ = tokio::task::spawn_blocking(move || process.tree.signal(signal)).await;
            }
        }
        Ok(())
    }

    /// Announces a reader. The process is held for it as for an attached reader.
    pub(crate) fn expect_reader(&self) {
        self.readers.expect();
    }

    /// Waits until the process has exited.
    pub(super) async fn exited(&self) {
        self.exit.wait().await;
    }

    /// Waits until the process has exited or has much output.
    pub(crate) async fn exited_or_large(&self) {
        tokio::select! {
            _ = self.exit.wait() => {}
            _ = self.has_large_output.wait() => {}
        }
    }

    /// Returns whether there is a frame for a reader with these cursors.
    pub(crate) fn is_ready(&self, cursors: Cursors) -> bool {
        !matches!(
            self.next(cursors, OutputStream::Stdout),
            ProcessProgress::Pending
        )
    }

    /// Completes with the next change after this call.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    /// Notifies readers of new output.
    pub(super) fn notify_progress(&self) {
        if self.stdout.end() + self.stderr.end() >= LARGE_OUTPUT_BYTES {
            // Fails if it was set before.
            _ = self.has_large_output.set(());
        }
        self.progress.notify_waiters();
    }

    /// Returns the next item. If both streams have output, it is of the stream `first`.
    pub(crate) fn next(&self, cursors: Cursors, first: OutputStream) -> ProcessProgress {
        // Read before the output: once there is an exit, the output is complete.
        let exit = self.exit.get().map(|exit| exit.frame.clone());
        let read = |stream| {
            let piece = match stream {
                OutputStream::Stdout => self.stdout.read(cursors.stdout),
                OutputStream::Stderr => self.stderr.read(cursors.stderr),
            };
            piece.map(|piece| ProcessProgress::Output(stream, piece))
        };
        let output = read(first).or_else(|| read(other(first)));
        output
            .or(exit.map(ProcessProgress::Exited))
            .unwrap_or(ProcessProgress::Pending)
    }

    /// Sets the exit, after the output was read. Returns the resources that the record uses from
    /// now on.
    pub(super) fn set_exit(&self, exit: ProcessExit) -> SpoolUsage {
        let (stdout, stderr) = (self.stdout.close(), self.stderr.close());
        let mut frame = Vec::new();
        // Cannot fail: the frame is short.
        let _: Result<(), FrameError> =
            ProcessFrame::Exit(Box::new(exit.clone())).encode(&mut frame);
        // Cannot fail: only one task watches the process.
        _ = self.exit.set(EncodedExit {
            exit,
            frame: frame.into(),
        });
        self.notify_progress();
        let argv: usize = self.argv.iter().map(String::len).sum();
        SpoolUsage {
            memory: stdout.memory + stderr.memory + argv as u64,
            disk: stdout.disk + stderr.disk,
            files: stdout.files + stderr.files,
        }
    }
}

pub(super) fn other(stream: OutputStream) -> OutputStream {
    match stream {
        OutputStream::Stdout => OutputStream::Stderr,
        OutputStream::Stderr => OutputStream::Stdout,
    }
}
