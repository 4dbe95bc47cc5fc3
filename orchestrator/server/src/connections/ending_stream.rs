//! A connection that ends at shutdown once it has been upgraded: its tasks are not those of the
//! server, and clients of sockets connect again only after the transport has ended.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A connection whose end is read at shutdown if it is upgraded.
pub(super) struct EndingStream<S> {
    stream: S,
    upgrade: Upgrade,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Whether a connection is upgraded.
#[derive(Clone, Default)]
pub(super) struct Upgrade(Arc<AtomicBool>);

impl Upgrade {
    /// Marks the connection as upgraded.
    pub(super) fn complete(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<S> EndingStream<S> {
    pub(super) fn new(stream: S, upgrade: Upgrade, shutdown: CancellationToken) -> Self {
        Self {
            stream,
            upgrade,
            shutdown: Box::pin(shutdown.cancelled_owned()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for EndingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_upgraded = self.upgrade.0.load(Ordering::Relaxed);
        if is_upgraded && self.shutdown.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EndingStream<S> {
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
