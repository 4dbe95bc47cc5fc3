//! Sends chunks from the thread that writes the archive to the client. The thread ends with the
//! archive, or when the client disconnects or does not read for [`STALL_TIMEOUT`].

use std::io::{self, Write};
use std::mem;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::{Stream, stream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::pack::{self, FileToPack};

const CHUNK_BYTES: usize = 64 << 10;

/// Number of buffered chunks, so that packing continues while the client reads.
const CHUNKS: usize = 8;

/// Applies to a client that stays connected without reading.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);

/// Streams the archive. Holds the permit until the end.
pub(super) fn send(
    files: Vec<FileToPack>,
    permit: Option<OwnedSemaphorePermit>,
) -> impl Stream<Item = io::Result<Bytes>> {
    let (sender, mut receiver) = mpsc::channel(CHUNKS);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut chunks = ChunkSender {
            sender,
            runtime,
            chunk: Vec::with_capacity(CHUNK_BYTES),
        };
        if let Err(error) = pack::write(&files, &mut chunks) {
            tracing::warn!(%error, "download failed");
            // Fails if the client has disconnected.
            _ = chunks.send(Err(error));
        }
    });
    stream::poll_fn(move |context| receiver.poll_recv(context))
}

struct ChunkSender {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    chunk: Vec<u8>,
}

impl ChunkSender {
    fn send(&self, chunk: io::Result<Bytes>) -> io::Result<()> {
        let sent = self
            .runtime
            .block_on(self.sender.send_timeout(chunk, STALL_TIMEOUT));
        sent.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error.to_string()))
    }
}

impl Write for ChunkSender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        self.send(Ok(chunk.into()))
    }
}
