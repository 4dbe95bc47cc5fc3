//! One action as the ledger holds it: its output so far, its ending once there is one.
//!
//! Readers never change it. It is dropped when the ledger has forgotten it and the last reader has gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use protocol::Observation;
use protocol::sandbox_api::{Frame, FrameError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::spool::{Held, Piece, Spool, SpoolStore};

/// Kind and length, before a frame's payload.
const FRAME_HEADER_BYTES: usize = 5;

/// An action that was begun.
#[derive(Debug)]
pub(crate) struct Entry {
    cancel: CancellationToken,
    /// Touched after every change of the output and of the ending: readers sleep on it.
    progress: watch::Sender<()>,
    output: Arc<Spool>,
    /// Set once, after the output was closed.
    ending: Mutex<Option<Ending>>,
}

/// How an action ended, encoded once as the last frame of its stream.
#[derive(Debug, Clone)]
pub(crate) struct Ending(Bytes);

impl Ending {
    /// An observation that is too long to be sent becomes one that says so: an action never stays without an ending.
    pub(super) fn encode(observation: Observation) -> Self {
        let mut frame = Vec::new();
        if let Err(error) = Frame::Observation(Box::new(observation)).encode(&mut frame) {
            tracing::warn!(%error, "an observation cannot be sent");
            frame.clear();
            let replacement = Observation::error(format!("The result cannot be sent: {error}."), "");
            // A text this short always encodes.
            let _: Result<(), FrameError> = Frame::Observation(Box::new(replacement)).encode(&mut frame);
        }
        Self(frame.into())
    }

    /// As the last frame of the stream.
    pub(crate) fn frame(&self) -> Bytes {
        self.0.clone()
    }

    /// As JSON alone.
    pub(crate) fn json(&self) -> Bytes {
        self.0.slice(FRAME_HEADER_BYTES.min(self.0.len())..)
    }
}

/// What a reader finds.
#[derive(Debug)]
pub(super) enum Next {
    /// Output, or a gap in it.
    Output(Piece),
    /// All output was read, and there is no more.
    Ending(Ending),
    /// All output so far was read.
    NothingYet,
}

impl Entry {
    pub(super) fn new(spools: &SpoolStore) -> Self {
        Self {
            cancel: CancellationToken::new(),
            progress: watch::Sender::new(()),
            output: Spool::new(spools),
            ending: Mutex::default(),
        }
    }

    /// Asks the action to end; its observation still comes. Too late is no error.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// How the action ended, once it has.
    pub(crate) async fn ended(&self) -> Ending {
        let mut progress = self.progress.subscribe();
        loop {
            if let Some(ending) = self.ending().clone() {
                return ending;
            }
            // The sender is `self.progress`, so it cannot be gone.
            let _: Result<(), watch::error::RecvError> = progress.changed().await;
        }
    }

    /// Waits until there is something to tell to a reader that has the first `after` bytes, and for what comes with it.
    pub(crate) async fn news(&self, after: u64) {
        let mut progress = self.progress.subscribe();
        while matches!(self.next(after), Next::NothingYet) {
            let _: Result<(), watch::error::RecvError> = progress.changed().await;
        }
        tokio::task::yield_now().await;
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    pub(super) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }

    pub(super) fn next(&self, cursor: u64) -> Next {
        // The ending first: once there is one, the output below is complete.
        let ending = self.ending().clone();
        match (self.output.read(cursor), ending) {
            (Some(piece), _) => Next::Output(piece),
            (None, Some(ending)) => Next::Ending(ending),
            (None, None) => Next::NothingYet,
        }
    }

    /// Output that comes after the ending belongs to nobody and is dropped.
    pub(super) fn push(&self, bytes: &[u8]) {
        self.output.push(bytes);
        self.progress.send_replace(());
    }

    /// Returns what is held from now on.
    pub(super) fn end(&self, ending: Ending) -> Held {
        let output = self.output.close();
        let holds = Held { memory: output.memory + ending.0.len() as u64, ..output };
        *self.ending() = Some(ending);
        self.progress.send_replace(());
        holds
    }

    fn ending(&self) -> MutexGuard<'_, Option<Ending>> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
