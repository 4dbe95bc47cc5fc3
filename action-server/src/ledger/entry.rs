//! One action as the ledger holds it: its output so far, its ending once there is one.
//!
//! Readers never change it. It is dropped when the ledger has forgotten it and the last reader has gone.

use std::sync::Arc;

use bytes::Bytes;
use protocol::Observation;
use protocol::sandbox_api::{ActionFrame, FrameError};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, SetOnce};
use tokio_util::sync::CancellationToken;

use super::spool::{Held, Piece, Spool, SpoolStore};

/// Kind and length, before a frame's payload.
const FRAME_HEADER_BYTES: usize = 5;

/// Output that is worth an answer's first part; as much as a socket takes at once.
pub(crate) const MUCH_BYTES: u64 = 64 << 10;

/// What the observation of most commands takes, so that its memory does not grow while it is written.
const COMMON_BYTES: usize = 512;

/// An action that was begun.
#[derive(Debug)]
pub(crate) struct Entry {
    cancel: CancellationToken,
    /// Touched after every change of the output and of the ending: readers sleep on it.
    progress: Notify,
    output: Arc<Spool>,
    /// Its output is more than an answer waits for.
    is_much: SetOnce<()>,
    /// Set after the output was closed.
    ending: SetOnce<Ending>,
}

/// How an action ended, encoded once as the last frame of its stream.
#[derive(Debug, Clone)]
pub(crate) struct Ending(Bytes);

impl Ending {
    /// An observation that is too long to be sent becomes one that says so: an action never stays without an ending.
    pub(super) fn encode(observation: Observation) -> Self {
        let mut frame = Vec::with_capacity(COMMON_BYTES);
        if let Err(error) = ActionFrame::Observation(Box::new(observation)).encode(&mut frame) {
            tracing::warn!(%error, "an observation cannot be sent");
            frame.clear();
            let replacement = Observation::error(format!("The result cannot be sent: {error}."), "");
            // A text this short always encodes.
            let _: Result<(), FrameError> =
                ActionFrame::Observation(Box::new(replacement)).encode(&mut frame);
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
            progress: Notify::new(),
            output: Spool::new(spools),
            is_much: SetOnce::new(),
            ending: SetOnce::new(),
        }
    }

    /// Asks the action to end; its observation still comes. Too late is no error.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// How the action ended, once it has.
    pub(crate) async fn ended(&self) -> Ending {
        self.ending.wait().await.clone()
    }

    /// Waits until it has ended, or has said much.
    pub(crate) async fn settled(&self) {
        tokio::select! {
            _ = self.ending.wait() => {}
            _ = self.is_much.wait() => {}
        }
    }

    /// Whether there is something to tell to a reader that has the first `after` bytes.
    pub(crate) fn has_news(&self, after: u64) -> bool {
        !matches!(self.next(after), Next::NothingYet)
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Ends with the next change after this call.
    pub(super) fn progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    pub(super) fn next(&self, cursor: u64) -> Next {
        // The ending first: once there is one, the output below is complete.
        let ending = self.ending.get().cloned();
        match (self.output.read(cursor), ending) {
            (Some(piece), _) => Next::Output(piece),
            (None, Some(ending)) => Next::Ending(ending),
            (None, None) => Next::NothingYet,
        }
    }

    /// Output that comes after the ending belongs to nobody and is dropped.
    pub(super) fn push(&self, bytes: &[u8]) {
        self.output.push(bytes);
        if self.output.end() >= MUCH_BYTES {
            // Once is enough.
            _ = self.is_much.set(());
        }
        self.progress.notify_waiters();
    }

    /// Returns what is held from now on.
    pub(super) fn end(&self, ending: Ending) -> Held {
        let output = self.output.close();
        let holds = Held { memory: output.memory + ending.0.len() as u64, ..output };
        // There is one: whoever ends it gives up the right to.
        _ = self.ending.set(ending);
        self.progress.notify_waiters();
        holds
    }
}
