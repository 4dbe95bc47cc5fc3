//! The archive that a client sends, for a blocking reader. If the client disconnects, reading
//! fails. Between two entries, the number of bytes is limited, because the `tar` crate reads long
//! names into memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc::Receiver;

/// A part of a request body.
#[derive(Debug)]
pub(crate) enum BodyPart {
    Part(Bytes),
    /// The complete body was received.
    End,
}

/// Reads the parts of a request body.
#[derive(Debug)]
pub(crate) struct ArchiveInput {
    parts: Receiver<BodyPart>,
    part: Bytes,
    is_over: bool,
    allowance: ReadAllowance,
    received: ReceivedBytes,
}

/// The number of bytes that may still be read. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadAllowance(Rc<Cell<u64>>);

impl ReadAllowance {
    pub(super) fn set(&self, bytes: u64) {
        self.0.set(bytes);
    }
}

/// The number of bytes that were read. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceivedBytes(Rc<Cell<u64>>);

impl ReceivedBytes {
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

impl ArchiveInput {
    pub(crate) fn new(parts: Receiver<BodyPart>) -> Self {
        let (allowance, received) = (ReadAllowance::default(), ReceivedBytes::default());
        Self {
            parts,
            part: Bytes::new(),
            is_over: false,
            allowance,
            received,
        }
    }

    pub(super) fn allowance(&self) -> ReadAllowance {
        self.allowance.clone()
    }

    pub(super) fn received(&self) -> ReceivedBytes {
        self.received.clone()
    }
}

impl Read for ArchiveInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() && !self.is_over {
            match self.parts.blocking_recv() {
                Some(BodyPart::Part(part)) => self.part = part,
                Some(BodyPart::End) => self.is_over = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the client disconnected",
                    ));
                }
            }
        }
        let left = self.allowance.0.get();
        if left == 0 && !self.part.is_empty() {
            return Err(io::Error::other("header too long"));
        }
        let max = usize::try_from(left).unwrap_or(usize::MAX);
        let count = self.part.len().min(buffer.len()).min(max);
        self.part
            .copy_to_slice(buffer.get_mut(..count).unwrap_or_default());
        self.allowance.0.set(left - count as u64);
        self.received.0.set(self.received.get() + count as u64);
        Ok(count)
    }
}
