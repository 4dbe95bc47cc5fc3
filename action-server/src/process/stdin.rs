//! The standard input of a process: one writer at a time, at the pace of the process, and no longer
//! than it runs.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Process;
use super::error::ProcessError;

/// The write end of the pipe, if there is one.
#[derive(Debug)]
pub(super) struct Stdin {
    is_pipe: bool,
    /// An async mutex, because it is locked while the process reads.
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

/// The exclusive right to write.
pub(crate) struct StdinWriter {
    process: Arc<Process>,
    pipe: OwnedMutexGuard<Option<ChildStdin>>,
}

impl Stdin {
    pub(super) fn new(pipe: Option<ChildStdin>) -> Self {
        Self {
            is_pipe: pipe.is_some(),
            pipe: Arc::new(Mutex::new(pipe)),
        }
    }

    /// Closes the pipe after the process has exited. A current writer detects the exit by itself.
    pub(super) fn close(&self) {
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }
}

impl Process {
    /// Waits for the exclusive right to write.
    pub(crate) async fn write_stdin(self: &Arc<Self>) -> Result<StdinWriter, ProcessError> {
        if !self.stdin.is_pipe {
            return Err(ProcessError::NoStdin(self.id().clone()));
        }
        let turn = Arc::clone(&self.stdin.pipe).lock_owned();
        let pipe = tokio::select! {
            pipe = turn => pipe,
            () = self.exited() => return Err(ProcessError::Ended(self.id().clone())),
        };
        let writer = StdinWriter {
            process: Arc::clone(self),
            pipe,
        };
        if writer.pipe.is_none() {
            Err(writer.closed())
        } else {
            Ok(writer)
        }
    }

    /// Returns the writer of a new process, whose pipe is not locked yet.
    pub(super) fn first_stdin_writer(self: &Arc<Self>) -> Option<StdinWriter> {
        let pipe = Arc::clone(&self.stdin.pipe).try_lock_owned().ok()?;
        Some(StdinWriter {
            process: Arc::clone(self),
            pipe,
        })
    }
}

impl StdinWriter {
    /// Writes all bytes to the pipe.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), ProcessError> {
        let Some(pipe) = self.pipe.as_mut() else {
            return Err(self.closed());
        };
        let written = tokio::select! {
            written = pipe.write_all(bytes) => written.is_ok(),
            // A descendant may have the read end open and never read.
            () = self.process.exited() => false,
        };
        if written {
            return Ok(());
        }
        self.close();
        Err(self.closed())
    }

    /// Closes the pipe, so that the process reads the end of its input.
    pub(crate) fn close(&mut self) {
        *self.pipe = None;
    }

    fn closed(&self) -> ProcessError {
        ProcessError::StdinClosed(self.process.id().clone())
    }
}
