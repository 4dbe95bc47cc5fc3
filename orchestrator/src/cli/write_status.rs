//! Records whether the output of a program in a sandbox could be written: the reader of a pipe may
//! exit, or the disk be full.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::exit::Exit;

/// Exit code that a shell reports for a program that SIGPIPE terminated.
const BROKEN_PIPE: u8 = 141;

/// The latest write error, until it is reported.
#[derive(Default)]
pub(super) struct WriteStatus {
    error: Mutex<Option<io::Error>>,
    failed: Notify,
}

impl WriteStatus {
    pub(super) fn record(&self, result: io::Result<()>) {
        if let Err(error) = result {
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.failed.notify_one();
        }
    }

    /// Waits for a write error and returns the exit that it causes. Cancel-safe.
    pub(super) async fn failed(&self) -> anyhow::Result<Exit> {
        loop {
            self.failed.notified().await;
            if let Some(exit) = self.failure() {
                return exit;
            }
        }
    }

    /// Returns the exit that a write error causes. `None` if all writes succeeded. Must also be
    /// called after the last write.
    pub(super) fn failure(&self) -> Option<anyhow::Result<Exit>> {
        let error = self
            .error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        Some(match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(Exit::OfCommand(BROKEN_PIPE)),
            _ => Err(anyhow::Error::new(error).context("cannot write to standard output")),
        })
    }
}
