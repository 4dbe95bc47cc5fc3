//! Sends the archive to a client in parts. Blocks on the client, and fails if the client
//! disconnects.

use std::io::{self, Write};

use bytes::Bytes;
use tokio::sync::mpsc::Sender;

use crate::files::PART_BYTES;

/// Collects the bytes of a part.
pub(super) struct ArchiveOutput {
    parts: Sender<io::Result<Bytes>>,
    part: Vec<u8>,
}

impl ArchiveOutput {
    pub(super) fn new(parts: Sender<io::Result<Bytes>>) -> Self {
        Self {
            parts,
            part: Vec::with_capacity(PART_BYTES),
        }
    }
}

impl Write for ArchiveOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fitting = bytes.get(..PART_BYTES - self.part.len()).unwrap_or(bytes);
        self.part.extend_from_slice(fitting);
        if self.part.len() >= PART_BYTES {
            self.flush()?;
        }
        Ok(fitting.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
        self.parts
            .blocking_send(Ok(part.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
