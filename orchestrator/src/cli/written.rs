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

    /// Returns once something could not be written. Cancel-safe.
    pub(super) async fn failed(&self) {
        self.failed.notified().await;
    }

    /// How this program ends then.
    pub(super) fn exit(&self) -> anyhow::Result<Exit> {
        match self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(anyhow::Error::new(error).context("writing what the program wrote"))
            }
            _ => Ok(Exit::OfCommand(BROKEN_PIPE)),
        }
    }
}
