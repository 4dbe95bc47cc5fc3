//! Copies output from a pipe to a spool, not faster than its readers and the disk.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::BytesMut;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use protocol::sandbox_api::OutputStream;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::Process;
use super::readers::{MAX_AHEAD_BYTES, Readers};
use crate::ledger::{KEPT_BYTES, Spool};

/// Size of one read: the default capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// Output after which the pipe is enlarged. With a small pipe that is often full, the process and
/// its reader would wait for each other in turns.
const BULK_BYTES: u64 = 256 << 10;

const LARGE_PIPE_BYTES: i32 = 512 << 10;

/// The largest pipe that the kernel allows a program to create.
const MAX_PIPE_BYTES: usize = 1 << 20;

// A reader that slows the process down misses nothing, even if no output can be written to the
// disk.
const _: () =
    assert!(MAX_AHEAD_BYTES as usize + READ_BYTES + LARGE_PIPE_BYTES as usize <= KEPT_BYTES);

/// Shorter reads are copied, so that they do not keep a whole buffer alive.
const SHORT_BYTES: usize = READ_BYTES / 4;

/// The reading end of a process's stdout or stderr.
pub(super) struct OutputPipe<P> {
    pipe: Option<P>,
    stream: OutputStream,
    spool: Arc<Spool>,
    readers: Arc<Readers>,
    buffer: BytesMut,
    is_bulk: bool,
}

impl<P: AsyncRead + AsFd + Unpin> OutputPipe<P> {
    pub(super) fn new(pipe: Option<P>, stream: OutputStream, process: &Process) -> Self {
        let spool = Arc::clone(match stream {
            OutputStream::Stdout => &process.stdout,
            OutputStream::Stderr => &process.stderr,
        });
        let readers = Arc::clone(&process.readers);
        Self {
            pipe,
            stream,
            spool,
            readers,
            buffer: BytesMut::new(),
            is_bulk: false,
        }
    }

    /// Whether the end of the pipe was read.
    pub(super) fn is_closed(&self) -> bool {
        self.pipe.is_none()
    }

    /// Waits until the readers and the disk accept more output.
    pub(super) async fn wait_for_room(&self) {
        self.readers
            .wait_for_room(self.stream, self.spool.end())
            .await;
        self.spool.wait_for_room().await;
    }

    /// Reads once. Never completes after the end of the pipe. Cancel-safe.
    pub(super) async fn read(&mut self) {
        self.wait_for_room().await;
        let Some(pipe) = &mut self.pipe else {
            return std::future::pending().await;
        };
        self.buffer.reserve(READ_BYTES);
        match pipe.read_buf(&mut self.buffer).await {
            Ok(count) if count > 0 => {
                self.store();
                self.enlarge();
            }
            _ => self.pipe = None,
        }
    }

    fn enlarge(&mut self) {
        if self.spool.end() < BULK_BYTES || std::mem::replace(&mut self.is_bulk, true) {
            return;
        }
        // Fails when the user's quota of pipe memory is used up; the pipe then stays small.
        _ = self
            .pipe
            .as_ref()
            .map(|pipe| fcntl(pipe, FcntlArg::F_SETPIPE_SZ(LARGE_PIPE_BYTES)));
    }

    fn store(&mut self) {
        if self.buffer.len() < SHORT_BYTES {
            self.spool.push(&self.buffer);
            self.buffer.clear();
        } else {
            self.spool.push_owned(self.buffer.split().freeze());
        }
    }

    /// Reads without waiting, at most the capacity of a pipe: all output that a process has written
    /// itself before its exit.
    pub(super) fn read_rest(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut buffer = vec![0; READ_BYTES];
        let mut rest = MAX_PIPE_BYTES;
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

    /// Reads and drops output until the end of the pipe. Descendants of the process may still
    /// write; without a reader, SIGPIPE would kill them.
    pub(super) async fn drain(self) {
        if let Some(mut pipe) = self.pipe {
            let _: io::Result<u64> = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
        }
    }
}
