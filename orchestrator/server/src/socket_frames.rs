//! The frames that a client sends over a WebSocket, before socketioxide buffers and parses them: it
//! has one maximum for the length of a message, and parses each on the thread that serves other
//! clients too. A socket that exceeds a limit is closed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use protocol::UserId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

use crate::error::ApiError;
use crate::input_memory::{FREE_BYTES, InputMemory, InputPermit};
use crate::json_values::{MAX_VALUES, ValueCounter};

/// Time of a frame at the maximum rate. Further ones are not read in time.
const FRAME_INTERVAL: Duration = Duration::from_millis(20);

/// Number of frames that may arrive together: browsers send a long message in many.
const MAX_FRAME_BURST: u32 = 256;

/// A connection whose messages have a maximum length and number of values, a part of the memory of
/// their user, and a maximum rate.
pub(crate) struct BoundedFrames<S> {
    stream: S,
    scanner: FrameScanner,
    memory: Arc<InputMemory>,
    user: Option<UserId>,
    /// Bytes that the message may have, and the permits for those beyond [`FREE_BYTES`].
    held: usize,
    permits: Vec<InputPermit>,
    /// When the next frame is due at the maximum rate.
    next_frame_at: Instant,
    /// What precedes the next read: the client has sent too many frames, or needs memory for its
    /// message.
    waiting: Option<BoxFuture<'static, Result<InputPermit, ApiError>>>,
}

impl<S> BoundedFrames<S> {
    pub(crate) fn new(
        stream: S,
        max_message_bytes: usize,
        memory: Arc<InputMemory>,
        user: Option<UserId>,
    ) -> Self {
        let scanner = FrameScanner {
            max_message_bytes: max_message_bytes as u64,
            ..FrameScanner::default()
        };
        Self {
            stream,
            scanner,
            memory,
            user,
            held: FREE_BYTES,
            permits: Vec::new(),
            next_frame_at: Instant::now(),
            waiting: None,
        }
    }

    /// Checks what has been read, and decides what the next read waits for.
    fn check(&mut self, read: &[u8]) -> io::Result<()> {
        let frame_count = self.scanner.scan(read)?;
        // At most the maximum length, which the scanner checks.
        let message_bytes = self.scanner.message_bytes as usize;
        if message_bytes == 0 {
            self.permits.clear();
            self.held = FREE_BYTES;
        }
        let now = Instant::now();
        self.next_frame_at = self.next_frame_at.max(now) + FRAME_INTERVAL * frame_count;
        let resume_at = self.next_frame_at - FRAME_INTERVAL * MAX_FRAME_BURST;
        let missing = message_bytes.saturating_sub(self.held);
        self.held += missing;
        if missing > 0 || resume_at > now {
            let (memory, user) = (Arc::clone(&self.memory), self.user.clone());
            self.waiting = Some(Box::pin(async move {
                sleep_until(resume_at).await;
                memory.acquire(user, missing).await
            }));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedFrames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(waiting) = &mut self.waiting {
            let permit = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            self.permits.push(permit.map_err(io::Error::other)?);
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.check(&buf.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedFrames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Follows the frames (RFC 6455) and the messages in the bytes of a client. Frames that are not
/// valid are left to tungstenite.
#[derive(Default)]
struct FrameScanner {
    max_message_bytes: u64,
    /// The header of the next frame, as far as it has arrived.
    header: Vec<u8>,
    frame: Option<Frame>,
    /// Length of the frames of the message that arrives, also of what is still missing.
    message_bytes: u64,
    values: ValueCounter,
}

/// A frame whose payload arrives.
struct Frame {
    is_last: bool,
    is_control: bool,
    mask: [u8; 4],
    length: u64,
    position: u64,
}

impl Frame {
    /// Parses a header. `None` if more of it is needed.
    fn parse(header: &[u8]) -> Option<Self> {
        let (&[first, second], rest) = header.split_first_chunk()?;
        let (length, rest) = match second & 0x7f {
            126 => rest
                .split_first_chunk()
                .map(|(length, rest)| (u16::from_be_bytes(*length).into(), rest))?,
            127 => rest
                .split_first_chunk()
                .map(|(length, rest)| (u64::from_be_bytes(*length), rest))?,
            length => (length.into(), rest),
        };
        let mask = if second & 0x80 == 0 {
            [0; 4]
        } else {
            *rest.first_chunk()?
        };
        Some(Self {
            is_last: first & 0x80 != 0,
            is_control: first & 0x08 != 0,
            mask,
            length,
            position: 0,
        })
    }

    /// Takes the part of the payload at the start of bytes, and returns it without its mask.
    fn take<'a>(&mut self, bytes: &mut &'a [u8]) -> impl Iterator<Item = u8> + use<'a> {
        let length = (self.length - self.position).min(bytes.len() as u64);
        let (payload, rest) = bytes.split_at(length as usize);
        let mut mask = self.mask;
        mask.rotate_left((self.position % 4) as usize);
        self.position += length;
        *bytes = rest;
        payload
            .iter()
            .zip(mask.into_iter().cycle())
            .map(|(byte, mask)| byte ^ mask)
    }
}

impl FrameScanner {
    /// Follows the next bytes. Returns the number of frames that start in them.
    ///
    /// # Errors
    /// The message is too long, or has too many values.
    fn scan(&mut self, mut bytes: &[u8]) -> io::Result<u32> {
        let mut frame_count = 0;
        while let Some((first, rest)) = bytes.split_first() {
            if let Some(frame) = &mut self.frame {
                let payload = frame.take(&mut bytes);
                if !frame.is_control && self.values.add(payload) > MAX_VALUES {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a message has too many values",
                    ));
                }
            } else {
                self.header.push(*first);
                bytes = rest;
                let Some(frame) = Frame::parse(&self.header) else {
                    continue;
                };
                self.header.clear();
                frame_count += 1;
                if !frame.is_control {
                    self.message_bytes = self.message_bytes.saturating_add(frame.length);
                }
                if self.message_bytes > self.max_message_bytes {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a message is too long",
                    ));
                }
                self.frame = Some(frame);
            }
            if let Some(frame) = self.frame.take_if(|frame| frame.position == frame.length)
                && frame.is_last
                && !frame.is_control
            {
                self.message_bytes = 0;
                self.values = ValueCounter::default();
            }
        }
        Ok(frame_count)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    /// A masked frame.
    fn frame(first: u8, payload: &str) -> Vec<u8> {
        let mask = [7, 0, 200, 1];
        let mut frame = vec![first];
        match payload.len() {
            length @ ..126 => frame.push(0x80 | length as u8),
            length @ 126..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(
            payload
                .bytes()
                .zip(mask.into_iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        frame
    }

    fn scanner(max_message_bytes: u64) -> FrameScanner {
        FrameScanner {
            max_message_bytes,
            ..FrameScanner::default()
        }
    }

    /// The parts of a read may end anywhere.
    #[test]
    fn frames_are_found_in_parts_of_any_length() {
        let values = format!("42[{}0]", "[],".repeat(100));
        let text = format!("\"{}\"", ",".repeat(MAX_VALUES));
        let bytes = [
            frame(0x81, "2"),
            frame(0x81, ""),
            frame(0x01, &values[..50]),
            frame(0x89, "ping"),
            frame(0x80, &values[50..]),
            frame(0x81, &text),
        ]
        .concat();
        for part in [1, 2, 3, 7, 1000, bytes.len()] {
            let mut scanner = scanner(1 << 20);
            let count: u32 = bytes
                .chunks(part)
                .map(|part| scanner.scan(part).unwrap())
                .sum();
            assert_eq!((count, scanner.message_bytes), (6, 0), "{part}");
            assert!(
                scanner.header.is_empty() && scanner.frame.is_none(),
                "{part}"
            );
        }
    }

    #[test]
    fn message_with_too_much_is_rejected() {
        let error = |bytes: &[u8]| {
            scanner(1 << 20)
                .scan(bytes)
                .map_err(|error| error.to_string())
        };
        let long = "x".repeat(1 << 19);
        // At its header.
        assert_eq!(
            error(&[0x81, 0xff, 0, 0, 0, 0, 0, 16, 0, 1, 0, 0, 0, 0]).unwrap_err(),
            "a message is too long"
        );
        assert_eq!(
            error(&[frame(0x01, &long), frame(0x00, &long)].concat()),
            Ok(2)
        );
        let three = [frame(0x01, &long), frame(0x00, &long), frame(0x80, "x")].concat();
        assert_eq!(error(&three).unwrap_err(), "a message is too long");
        let many = "[],".repeat(MAX_VALUES / 3);
        let fragments = [frame(0x01, &many), frame(0x00, &many)].concat();
        assert_eq!(
            error(&fragments).unwrap_err(),
            "a message has too many values"
        );
        assert_eq!(
            error(&[frame(0x81, &many), frame(0x81, &many)].concat()),
            Ok(2)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn message_is_read_when_there_is_memory() {
        let memory = Arc::new(InputMemory::default());
        let ada = || Some("ada".parse().unwrap());
        let held = memory.try_acquire(ada(), 60 << 20).unwrap();
        let message = frame(0x81, &"x".repeat(8 << 20));
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let mut server = BoundedFrames::new(server, 10 << 20, Arc::clone(&memory), ada());
        let mut received = Vec::new();
        let mut read = Box::pin(async {
            while received.len() < message.len() {
                server.read_buf(&mut received).await.unwrap();
            }
        });
        let (sent, ()) = tokio::join!(client.write_all(&message), async {
            assert!(
                timeout(Duration::from_secs(5), &mut read).await.is_err(),
                "the memory is used"
            );
            drop(held);
            read.await;
        });
        sent.unwrap();
        // Released with the end of the message.
        assert!(memory.try_acquire(ada(), 60 << 20).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn frames_above_the_rate_are_read_later() {
        let frames = frame(0x81, "3").repeat(2 * MAX_FRAME_BURST as usize);
        let mut server = BoundedFrames::new(frames.as_slice(), 1 << 10, Arc::default(), None);
        let started = Instant::now();
        let mut received = vec![0; 64];
        while server.read(&mut received).await.unwrap() > 0 {}
        let expected = FRAME_INTERVAL * MAX_FRAME_BURST;
        assert!(
            started.elapsed().abs_diff(expected) < FRAME_INTERVAL * 16,
            "{:?}",
            started.elapsed()
        );
    }
}
