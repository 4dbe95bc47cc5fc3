//! The end of a connection whose client may still send: a socket that is closed with unread bytes is reset, and the client
//! may lose the answer that says why nothing more was read.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::clients::Client;

/// How long, and how much, is read from a client that was answered and has not closed its side. Enough for one that reads
/// answers while it sends; one that does not could send for ever.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 64 << 20;

/// What is read at once and thrown away.
const BUFFER_BYTES: usize = 16 << 10;

/// A connection that reads and drops what still comes after its own side has ended.
pub(super) struct Lingering<S> {
    stream: S,
    client: Arc<Client>,
    ending: Option<Ending>,
}

struct Ending {
    timeout: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S, client: Arc<Client>) -> Self {
        Self { stream, client, ending: None }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Ends with the client's side, or at a bound.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ending = self.ending.get_or_insert_with(|| Ending {
            timeout: Box::pin(sleep(LINGER_TIMEOUT)),
            bytes_left: MAX_LINGER_BYTES,
        });
        let mut buffer = [0; BUFFER_BYTES];
        while ending.timeout.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut buffer);
            if ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).is_err() {
                break;
            }
            let read = buffer.filled().len();
            match ending.bytes_left.checked_sub(read) {
                Some(left) if read > 0 => ending.bytes_left = left,
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.client.is_drained() {
            ready!(self.poll_drain(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
