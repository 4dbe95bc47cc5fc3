//! Streams a process's output and exit as encoded frames, at the pace of the reader. A reader that
//! follows the process slows it down ([`super::readers`]). Dropping the stream does not kill the
//! process.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use protocol::sandbox_api::{FrameError, OutputStream, ProcessFrame};

use super::Process;
use super::entry::{Cursors, ProcessProgress, other};
use super::readers::AttachedReader;
use crate::ledger::OutputPiece;

/// Maximum payload of an output frame. Small compared to the HTTP/2 window, so that frames of
/// several processes alternate.
const FRAME_BYTES: usize = 64 << 10;

/// Output that is shorter is copied into a buffer with adjacent frames. Longer output is not
/// copied.
const SHORT_BYTES: usize = 8 << 10;

/// Size after which frames are written to the socket. About as much as a socket buffers.
const WRITE_BYTES: usize = 64 << 10;

/// Returns the frames of `process` for a reader that has its output up to `cursors`. They end with
/// the exit or, without `follow`, with the output so far.
pub(crate) fn frames(
    process: Arc<Process>,
    cursors: Cursors,
    follow: bool,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let (first, ready) = (OutputStream::Stdout, FrameQueue::default());
    let attached = follow.then(|| process.readers.attach(cursors));
    let reader = ProcessFrameReader {
        process,
        cursors,
        attached,
        first,
        ready,
    };
    stream::unfold(reader, |mut reader| async {
        let bytes = reader.next().await?;
        Some((Ok(bytes), reader))
    })
}

struct ProcessFrameReader {
    process: Arc<Process>,
    cursors: Cursors,
    /// `None` for a reader that does not follow the process.
    attached: Option<AttachedReader>,
    /// The stream to read next; the streams alternate.
    first: OutputStream,
    ready: FrameQueue,
}

/// Encoded frames.
#[derive(Default)]
struct FrameQueue {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// Frames after the pieces.
    tail: Vec<u8>,
    /// No frames follow.
    is_last: bool,
}

impl ProcessFrameReader {
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() && !self.ready.is_last {
            self.prepare().await;
        }
        self.ready.pop()
    }

    /// Waits for frames and queues all that are ready.
    async fn prepare(&mut self) {
        let process = Arc::clone(&self.process);
        while self.ready.len() < WRITE_BYTES {
            // Created before the state is read, so that no later change is missed.
            let progress = process.progress();
            match process.next(self.cursors, self.first) {
                ProcessProgress::Output(stream, piece) => self.queue_output(stream, piece).await,
                ProcessProgress::Exited(frame) => {
                    self.ready.push(frame);
                    return self.ready.is_last = true;
                }
                ProcessProgress::Pending if self.attached.is_none() => {
                    return self.ready.is_last = true;
                }
                ProcessProgress::Pending if self.ready.is_empty() => progress.await,
                ProcessProgress::Pending => return,
            }
        }
    }

    async fn queue_output(&mut self, stream: OutputStream, piece: OutputPiece) {
        let cursor = match stream {
            OutputStream::Stdout => &mut self.cursors.stdout,
            OutputStream::Stderr => &mut self.cursors.stderr,
        };
        let (mut bytes, to) = piece.read(*cursor).await;
        if bytes.is_empty() {
            let gap = ProcessFrame::Gap {
                stream,
                from: *cursor,
                to,
            };
            // Cannot fail: the frame is short.
            let _: Result<(), FrameError> = gap.encode(&mut self.ready.tail);
        }
        let mut offset = *cursor;
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(FRAME_BYTES));
            self.ready
                .tail
                .extend(ProcessFrame::output_header(stream, offset, part.len()));
            offset += part.len() as u64;
            self.ready.push(part);
        }
        *cursor = to;
        if let Some(attached) = &self.attached {
            attached.advance(self.cursors);
        }
        self.first = other(stream);
    }
}

impl FrameQueue {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use protocol::sandbox_api::{ProcessFrameDecoder, ProcessRequest};

    use super::*;
    use crate::environment::Environment;
    use crate::ledger::SpoolStore;
    use crate::process::{ProcessDefaults, Processes};

    #[tokio::test(flavor = "multi_thread")]
    async fn slow_reader_loses_nothing_without_a_disk() {
        let environment = Environment::new(crate::environment::for_commands(None));
        let defaults = ProcessDefaults {
            working_dir: std::env::temp_dir(),
            environment,
        };
        let processes = Processes::new(defaults, SpoolStore::without_disk());
        // The first fits into the buffers, and its process has exited when the first byte is read.
        for (bytes, exits) in [(700_000, true), (10_000_000, false)] {
            let request = ProcessRequest::new(["head", "-c", &bytes.to_string(), "/dev/zero"]);
            let process = processes
                .start(format!("p{bytes}").try_into().unwrap(), &request)
                .unwrap();
            let mut stream = Box::pin(frames(Arc::clone(&process), Cursors::default(), true));
            let limit = if exits {
                Duration::from_secs(20)
            } else {
                Duration::from_millis(500)
            };
            let held = tokio::time::timeout(limit, process.exited()).await;
            assert_eq!(held.is_ok(), exits, "{bytes}");
            let (mut decoder, mut received) = (ProcessFrameDecoder::default(), 0);
            while let Some(Ok(bytes)) = stream.next().await {
                decoder.push(&bytes);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    match frame {
                        ProcessFrame::Output { bytes, .. } => received += bytes.len(),
                        ProcessFrame::Gap { .. } => panic!("{frame:?}"),
                        ProcessFrame::Exit(exit) => assert_eq!(exit.code, Some(0)),
                    }
                }
            }
            assert_eq!(received, bytes);
        }
    }
}
