//! One process as it is held: what it was, what it wrote, how it ended. It is watched elsewhere.

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
use super::stdin::Stdin;
use crate::ledger::{Held, MUCH_BYTES, Piece, Spool, SpoolStore};
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
    pub(super) stdin: Stdin,
    /// Cancelled to kill it.
    pub(super) kill: CancellationToken,
    /// Touched after every change of the output and of the exit: readers sleep on it.
    progress: Notify,
    /// Its output is more than an answer waits for.
    is_much: SetOnce<()>,
    /// Set after the output was closed.
    exit: SetOnce<Exit>,
}

/// How it ended, and the same as the last frame of its stream.
#[derive(Debug, Clone)]
struct Exit {
    exit: ProcessExit,
    frame: Bytes,
}

/// How much of its output a reader has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursors {
    pub(crate) stdout: u64,
    pub(crate) stderr: u64,
}

/// What a reader finds.
pub(crate) enum Next {
    /// Output, or a gap in it.
    Output(OutputStream, Piece),
    /// All output was read, and there is no more.
    Exit(Bytes),
    /// All output so far was read.
    NothingYet,
}

/// What is known of a process when it has just been started.
pub(super) struct Started {
    pub(super) id: ProcessId,
    pub(super) argv: Vec<String>,
    pub(super) at_ms: u64,
    pub(super) tree: ProcessTree,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) kill: CancellationToken,
}

impl Process {
    pub(super) fn new(started: Started, spools: &SpoolStore) -> Self {
        let Started { id, argv, at_ms, tree, stdin, kill } = started;
        Self {
            id,
            argv,
            started_at_ms: at_ms,
            tree,
            stdout: Spool::new(spools),
            stderr: Spool::new(spools),
            stdin: Stdin::new(stdin),
            kill,
            progress: Notify::new(),
            is_much: SetOnce::new(),
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
            state: if exit.is_some() { ProcessState::Exited } else { ProcessState::Running },
            exit,
            started_at_ms: self.started_at_ms,
            stdout_bytes: self.stdout.end(),
            stderr_bytes: self.stderr.end(),
        }
    }

    /// Asks for the end of the process and of all that came of it; its exit still comes. Too late is no error.
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
                // It fails when the runtime ends, and every process with it.
                _ = tokio::task::spawn_blocking(move || process.tree.signal(signal)).await;
            }
        }
        Ok(())
    }

    /// Waits for the exit.
    pub(super) async fn exited(&self) {
        self.exit.wait().await;
    }

    /// Waits until it has ended, or has written much.
    pub(crate) async fn settled(&self) {
        tokio::select! {
            _ = self.exit.wait() => {}
            _ = self.is_much.wait() => {}
        }
    }

    /// Whether there is something to tell to a reader.
    pub(crate) fn has_news(&self, cursors: Cursors) -> bool {
        !matches!(self.next(cursors, OutputStream::Stdout), Next::NothingYet)
    }

    /// Ends with the next change after this call.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    /// There is more to read.
    pub(super) fn note_progress(&self) {
        if self.stdout.end() + self.stderr.end() >= MUCH_BYTES {
            // Once is enough.
            _ = self.is_much.set(());
        }
        self.progress.notify_waiters();
    }

    /// What comes next, of the stream `first` if both have something.
    pub(crate) fn next(&self, cursors: Cursors, first: OutputStream) -> Next {
        // The exit first: once there is one, the output below is complete.
        let exit = self.exit.get().map(|exit| exit.frame.clone());
        let read = |stream| {
            let piece = match stream {
                OutputStream::Stdout => self.stdout.read(cursors.stdout),
                OutputStream::Stderr => self.stderr.read(cursors.stderr),
            };
            piece.map(|piece| Next::Output(stream, piece))
        };
        let output = read(first).or_else(|| read(other(first)));
        output.or(exit.map(Next::Exit)).unwrap_or(Next::NothingYet)
    }

    /// The process has ended and its output was read. Returns what is held from now on.
    pub(super) fn end(&self, exit: ProcessExit) -> Held {
        let (stdout, stderr) = (self.stdout.close(), self.stderr.close());
        let mut frame = Vec::new();
        // So small that it always encodes.
        let _: Result<(), FrameError> = ProcessFrame::Exit(Box::new(exit.clone())).encode(&mut frame);
        // There is one: a process is watched once.
        _ = self.exit.set(Exit { exit, frame: frame.into() });
        self.note_progress();
        let argv: usize = self.argv.iter().map(String::len).sum();
        Held {
            memory: stdout.memory + stderr.memory + argv as u64,
            disk: stdout.disk + stderr.disk,
            files: stdout.files + stderr.files,
        }
    }
}

/// The other stream.
pub(super) fn other(stream: OutputStream) -> OutputStream {
    match stream {
        OutputStream::Stdout => OutputStream::Stderr,
        OutputStream::Stderr => OutputStream::Stdout,
    }
}
