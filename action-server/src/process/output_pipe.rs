//! From a pipe into a spool, at the pace of the disk at the latest.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::BytesMut;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::ledger::Spool;

/// One read: what a pipe holds unless it is made larger.
const READ_BYTES: usize = 64 << 10;

/// What a process has written by then is no answer but bulk, and its pipe is made large: in one that is full every other
/// moment, the process and its reader wait for each other in turns.
const BULK_BYTES: u64 = 256 << 10;

const LARGE_PIPE_BYTES: i32 = 1 << 20;

/// Shorter reads are copied, so that one does not keep a whole buffer.
const SHORT_BYTES: usize = READ_BYTES / 4;

/// The reading end of a process's stdout or stderr.
pub(super) struct OutputPipe<P> {
    pipe: Option<P>,
    spool: Arc<Spool>,
    buffer: BytesMut,
    is_bulk: bool,
}

impl<P: AsyncRead + AsFd + Unpin> OutputPipe<P> {
    pub(super) fn new(pipe: Option<P>, spool: Arc<Spool>) -> Self {
        Self { pipe, spool, buffer: BytesMut::new(), is_bulk: false }
    }

    /// Reads once. Never returns when nobody can write any more. Cancel-safe.
    pub(super) async fn read(&mut self) {
        self.spool.room().await;
        let Some(pipe) = &mut self.pipe else { return std::future::pending().await };
        self.buffer.reserve(READ_BYTES);
        match pipe.read_buf(&mut self.buffer).await {
            Ok(count) if count > 0 => {
                self.take();
                self.widen();
            }
            _ => self.pipe = None,
        }
    }

    fn widen(&mut self) {
        if self.spool.end() < BULK_BYTES || std::mem::replace(&mut self.is_bulk, true) {
            return;
        }
        // A user has only so many large pipes; a small one does as well.
        _ = self.pipe.as_ref().map(|pipe| fcntl(pipe, FcntlArg::F_SETPIPE_SZ(LARGE_PIPE_BYTES)));
    }

    fn take(&mut self) {
        if self.buffer.len() < SHORT_BYTES {
            self.spool.push(&self.buffer);
            self.buffer.clear();
        } else {
            self.spool.push_owned(self.buffer.split().freeze());
        }
    }

    /// Reads what is there without waiting, no more than a pipe holds: all that a process wrote that has ended.
    pub(super) fn read_rest(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut buffer = vec![0; READ_BYTES];
        let mut rest = LARGE_PIPE_BYTES as usize;
        while rest > 0 {
            match nix::unistd::read(pipe, &mut buffer) {
                Ok(0) => return self.pipe = None,
                Ok(count) => {
                    self.spool.push(buffer.get(..count).unwrap_or_default());
                    rest = rest.saturating_sub(count);
                }
                Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Reads to the end and keeps nothing. What a process left behind may go on writing; without a reader, that would kill
    /// it.
    pub(super) async fn drain(self) {
        if let Some(mut pipe) = self.pipe {
            let _: io::Result<u64> = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
        }
    }
}
