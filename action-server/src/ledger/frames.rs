//! Streams an action's output and result as encoded frames. The stream proceeds at the pace of its
//! reader and never blocks the action. Dropping it does not cancel the action. Its last frame is
//! the observation.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use protocol::sandbox_api::{ActionFrame, FrameError};

use super::entry::{ActionProgress, ActionRecord};
use super::spool::OutputPiece;

/// Size after which frames are written to the socket. About as much as a socket buffers.
const WRITE_BYTES: usize = 64 << 10;

/// Maximum payload of an output frame. Small compared to the HTTP/2 window, so that frames of
/// several actions alternate.
const FRAME_BYTES: usize = 64 << 10;

/// Returns the frames of `entry` for a reader that has the first `after` bytes of its output.
pub(crate) fn frames(
    entry: Arc<ActionRecord>,
    after: u64,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let reader = ActionFrameReader {
        entry,
        cursor: after,
    };
    stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        let (frame, is_last) = reader.next().await;
        Some((Ok(frame), (!is_last).then_some(reader)))
    })
}

struct ActionFrameReader {
    entry: Arc<ActionRecord>,
    cursor: u64,
}

impl ActionFrameReader {
    /// Waits for frames and returns all that are ready, so that they are sent in one write.
    async fn next(&mut self) -> (Bytes, bool) {
        let mut ready = Vec::new();
        let entry = Arc::clone(&self.entry);
        loop {
            // Created before the state is read, so that no later change is missed.
            let progress = entry.progress();
            match entry.next(self.cursor) {
                ActionProgress::Output(piece) => {
                    self.encode_output(piece, &mut ready).await;
                    if ready.len() >= WRITE_BYTES {
                        return (ready.into(), false);
                    }
                }
                ActionProgress::Completed(result) => {
                    ready.extend_from_slice(&result.frame());
                    return (ready.into(), true);
                }
                ActionProgress::Pending if ready.is_empty() => progress.await,
                ActionProgress::Pending => return (ready.into(), false),
            }
        }
    }

    async fn encode_output(&mut self, piece: OutputPiece, into: &mut Vec<u8>) {
        let (bytes, to) = piece.read(self.cursor).await;
        for (offset, bytes) in (self.cursor..)
            .step_by(FRAME_BYTES)
            .zip(bytes.chunks(FRAME_BYTES))
        {
            log_error(ActionFrame::encode_output(offset, bytes, into));
        }
        if bytes.is_empty() {
            log_error(
                ActionFrame::Gap {
                    from: self.cursor,
                    to,
                }
                .encode(into),
            );
        }
        self.cursor = to;
    }
}

fn log_error(encoded: Result<(), FrameError>) {
    if let Err(error) = encoded {
        // Cannot happen: output frames are much shorter than the maximum.
        tracing::error!(%error, "cannot encode output");
    }
}
