//! What there is of a process as a stream of encoded frames. Reads at its reader's pace and holds nothing up; dropping it
//! leaves the process alone.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use protocol::sandbox_api::{FrameError, OutputStream, ProcessFrame};

use super::Process;
use super::entry::{Cursors, Next, other};
use crate::ledger::Piece;

/// The most that one frame carries: small beside the stream window, so that frames of several processes take turns.
const FRAME_BYTES: usize = 64 << 10;

/// Shorter output is copied into one piece with what is around it; longer is handed on as it is.
const SHORT_BYTES: usize = 8 << 10;

/// What is prepared at once is about as much as a socket takes.
const WRITE_BYTES: usize = 64 << 10;

/// The frames of `process` for a reader that has its output up to `cursors`: to its exit, or, without `follow`, those
/// that there are now.
pub(crate) fn frames(
    process: Arc<Process>,
    cursors: Cursors,
    follow: bool,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let reader = Reader { process, cursors, follow, first: OutputStream::Stdout, ready: Ready::default() };
    stream::unfold(reader, |mut reader| async {
        let bytes = reader.next().await?;
        Some((Ok(bytes), reader))
    })
}

struct Reader {
    process: Arc<Process>,
    cursors: Cursors,
    follow: bool,
    /// The streams take turns.
    first: OutputStream,
    ready: Ready,
}

/// What can be written.
#[derive(Default)]
struct Ready {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// What comes after them.
    tail: Vec<u8>,
    /// Nothing follows.
    is_last: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() && !self.ready.is_last {
            self.prepare().await;
        }
        self.ready.pop()
    }

    /// What there is, once there is something: what is ready together goes out together.
    async fn prepare(&mut self) {
        let process = Arc::clone(&self.process);
        while self.ready.len() < WRITE_BYTES {
            // Before the look: it misses no change after it.
            let progress = process.progress();
            match process.next(self.cursors, self.first) {
                Next::Output(stream, piece) => self.tell(stream, piece).await,
                Next::Exit(frame) => {
                    self.ready.push(frame);
                    return self.ready.is_last = true;
                }
                Next::NothingYet if !self.follow => return self.ready.is_last = true,
                Next::NothingYet if self.ready.is_empty() => progress.await,
                Next::NothingYet => return,
            }
        }
    }

    async fn tell(&mut self, stream: OutputStream, piece: Piece) {
        let cursor = match stream {
            OutputStream::Stdout => &mut self.cursors.stdout,
            OutputStream::Stderr => &mut self.cursors.stderr,
        };
        let (mut bytes, to) = piece.read(*cursor).await;
        if bytes.is_empty() {
            let gap = ProcessFrame::Gap { stream, from: *cursor, to };
            // So small that it always encodes.
            let _: Result<(), FrameError> = gap.encode(&mut self.ready.tail);
        }
        let mut offset = *cursor;
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(FRAME_BYTES));
            self.ready.tail.extend(ProcessFrame::output_header(stream, offset, part.len()));
            offset += part.len() as u64;
            self.ready.push(part);
        }
        *cursor = to;
        self.first = other(stream);
    }
}

impl Ready {
    fn len(&self) -> usize {
        self.bytes + self.tail.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SHORT_BYTES {
            return self.tail.extend_from_slice(&bytes);
        }
        self.finish_tail();
        self.bytes += bytes.len();
        self.pieces.push_back(bytes);
    }

    fn finish_tail(&mut self) {
        if !self.tail.is_empty() {
            self.bytes += self.tail.len();
            self.pieces.push_back(std::mem::take(&mut self.tail).into());
        }
    }

    fn pop(&mut self) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.finish_tail();
        }
        let bytes = self.pieces.pop_front()?;
        self.bytes -= bytes.len();
        Some(bytes)
    }
}
