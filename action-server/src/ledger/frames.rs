//! An action's answer as a stream of encoded frames. Reads at its reader's pace and holds nothing up; dropping it
//! leaves the action alone; it ends with the observation.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use protocol::sandbox_api::Frame;
use tokio::sync::watch;

use super::entry::{Entry, Next};
use super::output::cursor_after;

/// The frames of `entry` for a reader that has the first `after` bytes of its output.
pub(crate) fn frames(
    entry: Arc<Entry>,
    after: u64,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let reader = Reader { progress: entry.progress(), entry, cursor: after };
    stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        let (frame, is_last) = reader.next().await;
        Some((Ok(frame), (!is_last).then_some(reader)))
    })
}

struct Reader {
    entry: Arc<Entry>,
    cursor: u64,
    progress: watch::Receiver<()>,
}

impl Reader {
    async fn next(&mut self) -> (Bytes, bool) {
        loop {
            match self.entry.next(self.cursor) {
                Next::Frame(frame) => {
                    self.cursor = cursor_after(&frame, self.cursor);
                    return (encode(&frame), false);
                }
                Next::Ending(ending) => return (ending.frame(), true),
                // A change between the look above and this line is not missed: the receiver remembers the version
                // it saw last, which is older. It does not fail: the entry holds the sender.
                Next::NothingYet => drop(self.progress.changed().await),
            }
        }
    }
}

fn encode(frame: &Frame) -> Bytes {
    let mut bytes = Vec::new();
    if let Err(error) = frame.encode(&mut bytes) {
        // Cannot happen: output frames are cut far below the longest.
        tracing::error!(%error, "encoding output");
    }
    bytes.into()
}
