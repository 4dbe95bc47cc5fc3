//! An action's answer as a stream of encoded frames. Reads at its reader's pace and holds nothing up; dropping it
//! leaves the action alone; it ends with the observation.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use protocol::sandbox_api::{ActionFrame, FrameError};

use super::entry::{Entry, Next};
use super::spool::Piece;

/// What is written at once is about as much as a socket takes.
const WRITE_BYTES: usize = 64 << 10;

/// The most that one frame carries: small beside the stream window, so that frames of several actions take turns.
const FRAME_BYTES: usize = 64 << 10;

/// The frames of `entry` for a reader that has the first `after` bytes of its output.
pub(crate) fn frames(
    entry: Arc<Entry>,
    after: u64,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let reader = Reader { entry, cursor: after };
    stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        let (frame, is_last) = reader.next().await;
        Some((Ok(frame), (!is_last).then_some(reader)))
    })
}

struct Reader {
    entry: Arc<Entry>,
    cursor: u64,
}

impl Reader {
    /// What there is, once there is something: frames that are ready together go out together, in one write.
    async fn next(&mut self) -> (Bytes, bool) {
        let mut ready = Vec::new();
        let entry = Arc::clone(&self.entry);
        loop {
            // Before the look: it misses no change after it.
            let progress = entry.progress();
            match entry.next(self.cursor) {
                Next::Output(piece) => {
                    self.tell(piece, &mut ready).await;
                    if ready.len() >= WRITE_BYTES {
                        return (ready.into(), false);
                    }
                }
                Next::Ending(ending) => {
                    ready.extend_from_slice(&ending.frame());
                    return (ready.into(), true);
                }
                Next::NothingYet if ready.is_empty() => progress.await,
                Next::NothingYet => return (ready.into(), false),
            }
        }
    }

    async fn tell(&mut self, piece: Piece, into: &mut Vec<u8>) {
        let (bytes, to) = piece.read(self.cursor).await;
        for (offset, bytes) in (self.cursor..).step_by(FRAME_BYTES).zip(bytes.chunks(FRAME_BYTES)) {
            check(ActionFrame::encode_output(offset, bytes, into));
        }
        if bytes.is_empty() {
            check(ActionFrame::Gap { from: self.cursor, to }.encode(into));
        }
        self.cursor = to;
    }
}

fn check(encoded: Result<(), FrameError>) {
    if let Err(error) = encoded {
        // Cannot happen: output frames are cut far below the longest.
        tracing::error!(%error, "encoding output");
    }
}
