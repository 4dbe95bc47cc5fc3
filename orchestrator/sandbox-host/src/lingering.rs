//! Drains a connection before it is closed, because its client may still send. Closing a socket
//! with unread bytes resets the connection, and the client may lose the response that says why no
//! more was read. The action server does the same (`action-server/src/server/lingering.rs`).

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::clients::Client;

/// Maximum time and number of bytes to drain: enough for a client that reads responses while it
/// sends. Without a limit, a client could send forever.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_LINGER_BYTES: usize = 64 << 20;

/// Size of one read.
const BUFFER_BYTES: usize = 16 << 10;

/// Stream that drains its input after its write side was shut down.
pub(super) struct Lingering<S> {
    stream: S,
    client: Arc<Client>,
    drain: Option<Drain>,
}

struct Drain {
    timeout: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S, client: Arc<Client>) -> Self {
        Self {
            stream,
            client,
            drain: None,
        }
    }
}

impl<S: AsyncRead + Unpin> Lingering<S> {
    /// Completes when the client closes its side, or at a limit.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let drain = self.drain.get_or_insert_with(|| Drain {
            timeout: Box::pin(sleep(LINGER_TIMEOUT)),
            bytes_left: MAX_LINGER_BYTES,
        });
        let mut buffer = [0; BUFFER_BYTES];
        while drain.timeout.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut buffer);
            if ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).is_err() {
                break;
            }
            let read = buffer.filled().len();
            match drain.bytes_left.checked_sub(read) {
                Some(left) if read > 0 => drain.bytes_left = left,
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
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.drain.is_none() {
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
