//! The record of one action: its output so far, and its result once it has completed.
//!
//! Readers never change it. It is dropped once the ledger has expired it and the last reader is
//! gone.

use std::sync::Arc;

use bytes::Bytes;
use protocol::Observation;
use protocol::sandbox_api::{ActionFrame, FrameError};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, SetOnce};
use tokio_util::sync::CancellationToken;

use super::spool::{OutputPiece, Spool, SpoolStore, SpoolUsage};

/// Size of a frame's kind and length, which precede its payload.
const FRAME_HEADER_BYTES: usize = 5;

/// Amount of output after which a response is started without waiting for more. As much as a socket
/// buffers.
pub(crate) const LARGE_OUTPUT_BYTES: u64 = 64 << 10;

/// Initial buffer size for an observation. Fits those of most commands.
const TYPICAL_OBSERVATION_BYTES: usize = 512;

/// An action that was started.
#[derive(Debug)]
pub(crate) struct ActionRecord {
    cancel: CancellationToken,
    /// Notified after every change of the output or the result.
    progress: Notify,
    output: Arc<Spool>,
    /// Set once the output exceeds [`LARGE_OUTPUT_BYTES`].
    has_large_output: SetOnce<()>,
    /// Set after the output was closed.
    result: SetOnce<ActionResult>,
}

/// The observation of a completed action, encoded as the last frame of its stream.
#[derive(Debug, Clone)]
pub(crate) struct ActionResult(Bytes);

impl ActionResult {
    /// Encodes the observation. One that exceeds the maximum length is replaced by an error, so
    /// that every action completes.
    pub(super) fn encode(observation: Observation) -> Self {
        let mut frame = Vec::with_capacity(TYPICAL_OBSERVATION_BYTES);
        if let Err(error) = ActionFrame::Observation(Box::new(observation)).encode(&mut frame) {
            tracing::warn!(%error, "observation cannot be encoded");
            frame.clear();
            let replacement =
                Observation::error(format!("The result cannot be sent: {error}."), "");
            // Cannot fail: the text is short.
            let _: Result<(), FrameError> =
                ActionFrame::Observation(Box::new(replacement)).encode(&mut frame);
        }
        Self(frame.into())
    }

    /// Returns the last frame of the stream.
    pub(crate) fn frame(&self) -> Bytes {
        self.0.clone()
    }

    /// Returns the observation as JSON, without the header of the frame.
    pub(crate) fn json(&self) -> Bytes {
        self.0.slice(FRAME_HEADER_BYTES.min(self.0.len())..)
    }
}

/// The next item for a reader.
#[derive(Debug)]
pub(super) enum ActionProgress {
    /// Output, or a gap in it.
    Output(OutputPiece),
    /// All output was read, and the action has completed.
    Completed(ActionResult),
    /// All output so far was read.
    Pending,
}

impl ActionRecord {
    pub(super) fn new(spools: &SpoolStore) -> Self {
        Self {
            cancel: CancellationToken::new(),
            progress: Notify::new(),
            output: Spool::new(spools),
            has_large_output: SetOnce::new(),
            result: SetOnce::new(),
        }
    }

    /// Cancels the action, which still completes with an observation. No effect if it has
    /// completed.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Waits for the result.
    pub(crate) async fn completed(&self) -> ActionResult {
        self.result.wait().await.clone()
    }

    /// Waits until the action has completed or has much output.
    pub(crate) async fn completed_or_large(&self) {
        tokio::select! {
            _ = self.result.wait() => {}
            _ = self.has_large_output.wait() => {}
        }
    }

    /// Returns whether there is a frame for a reader that has the first `after` bytes.
    pub(crate) fn is_ready(&self, after: u64) -> bool {
        !matches!(self.next(after), ActionProgress::Pending)
    }

    pub(super) fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// Completes with the next change after this call.
    pub(super) fn progress(&self) -> Notified<'_> {
        self.progress.notified()
    }

    pub(super) fn next(&self, cursor: u64) -> ActionProgress {
        // Read before the output: once there is a result, the output is complete.
        let result = self.result.get().cloned();
        match (self.output.read(cursor), result) {
            (Some(piece), _) => ActionProgress::Output(piece),
            (None, Some(result)) => ActionProgress::Completed(result),
            (None, None) => ActionProgress::Pending,
        }
    }

    /// Appends output. Output after the result is dropped.
    pub(super) fn push(&self, bytes: &[u8]) {
        self.output.push(bytes);
        if self.output.end() >= LARGE_OUTPUT_BYTES {
            // Fails if it was set before.
            _ = self.has_large_output.set(());
        }
        self.progress.notify_waiters();
    }

    /// Completes the action. Returns the resources that the record uses from now on.
    pub(super) fn complete(&self, result: ActionResult) -> SpoolUsage {
        let output = self.output.close();
        let usage = SpoolUsage {
            memory: output.memory + result.0.len() as u64,
            ..output
        };
        // Cannot fail: only one `RunningAction` exists, and it completes the action once.
        _ = self.result.set(result);
        self.progress.notify_waiters();
        usage
    }
}
