//! From the thread that packs to the client that reads. The thread ends with its archive, with its reader, or when the
//! reader has read nothing for [`STALL`].

use std::io::{self, Write};
use std::mem;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::{Stream, stream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::pack::{self, Found};

const CHUNK_BYTES: usize = 64 << 10;

/// On their way at once: the thread packs the next while these are read.
const CHUNKS: usize = 8;

/// A reader that is gone is noticed by its connection; this is for one that is there and does not read.
const STALL: Duration = Duration::from_secs(120);

/// The archive's bytes. The permit is held until the last is sent.
pub(super) fn send(
    files: Vec<Found>,
    permit: Option<OwnedSemaphorePermit>,
) -> impl Stream<Item = io::Result<Bytes>> {
    let (sender, mut receiver) = mpsc::channel(CHUNKS);
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut chunks = Chunks { sender, runtime, chunk: Vec::with_capacity(CHUNK_BYTES) };
        if let Err(error) = pack::write(&files, &mut chunks) {
            tracing::warn!(%error, "a download is cut");
            // Nobody may listen any more.
            _ = chunks.deliver(Err(error));
        }
    });
    stream::poll_fn(move |context| receiver.poll_recv(context))
}

struct Chunks {
    sender: mpsc::Sender<io::Result<Bytes>>,
    runtime: Handle,
    chunk: Vec<u8>,
}

impl Chunks {
    fn deliver(&self, chunk: io::Result<Bytes>) -> io::Result<()> {
        let sent = self.runtime.block_on(self.sender.send_timeout(chunk, STALL));
        sent.map_err(|error| io::Error::new(io::ErrorKind::BrokenPipe, error.to_string()))
    }
}

impl Write for Chunks {
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
        self.deliver(Ok(chunk.into()))
    }
}
