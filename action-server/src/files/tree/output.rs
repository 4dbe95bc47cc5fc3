//! Where a thread writes what a client reads. It waits for the client, and fails when the client is gone.

use std::io::{self, Write};

use bytes::Bytes;
use tokio::sync::mpsc::Sender;

use crate::files::PART_BYTES;

/// Collects parts.
pub(super) struct Output {
    parts: Sender<io::Result<Bytes>>,
    part: Vec<u8>,
}

impl Output {
    pub(super) fn to(parts: Sender<io::Result<Bytes>>) -> Self {
        Self { parts, part: Vec::with_capacity(PART_BYTES) }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.get(..PART_BYTES - self.part.len()).unwrap_or(bytes);
        self.part.extend_from_slice(taken);
        if self.part.len() >= PART_BYTES {
            self.flush()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
        self.parts.blocking_send(Ok(part.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
