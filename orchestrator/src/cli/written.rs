//! How it goes to write on what a program in a sandbox writes: our own reader may go away, or our disk be full.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::exit::Exit;

/// What a shell tells of a program that wrote to a pipe that nobody reads.
const BROKEN_PIPE: u8 = 141;

/// Whether all could be written so far.
#[derive(Default)]
pub(super) struct Written {
    error: Mutex<Option<io::Error>>,
    failed: Notify,
}

impl Written {
    pub(super) fn hear(&self, written: io::Result<()>) {
        if let Err(error) = written {
            *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            self.failed.notify_one();
        }
    }

    /// How this program ends once something could not be written. Cancel-safe.
    pub(super) async fn failed(&self) -> anyhow::Result<Exit> {
        loop {
            self.failed.notified().await;
            if let Some(exit) = self.failure() {
                return exit;
            }
        }
    }

    /// How this program ends if something could not be written. Asked also when all is over: the last of it may be what failed.
    pub(super) fn failure(&self) -> Option<anyhow::Result<Exit>> {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(Exit::OfCommand(BROKEN_PIPE)),
            _ => Err(anyhow::Error::new(error).context("writing to standard output")),
        })
    }
}
