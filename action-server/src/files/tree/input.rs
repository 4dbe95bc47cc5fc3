//! What a client sends, as a thread reads it. A client that goes away in the middle has not ended its archive. The thread
//! may be sent no more between two entries than they can need: names are read into memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc::Receiver;

/// What has come of a body.
#[derive(Debug)]
pub(crate) enum Arrived {
    Part(Bytes),
    /// All of it was received.
    End,
}

/// Reads what arrives.
#[derive(Debug)]
pub(crate) struct Input {
    parts: Receiver<Arrived>,
    part: Bytes,
    is_over: bool,
    allowance: Allowance,
    received: Received,
}

/// How many more bytes may be read. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    pub(super) fn set(&self, bytes: u64) {
        self.0.set(bytes);
    }
}

/// How many bytes have been read. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Received(Rc<Cell<u64>>);

impl Received {
    pub(super) fn bytes(&self) -> u64 {
        self.0.get()
    }
}

impl Input {
    pub(crate) fn from(parts: Receiver<Arrived>) -> Self {
        let (allowance, received) = (Allowance::default(), Received::default());
        Self { parts, part: Bytes::new(), is_over: false, allowance, received }
    }

    pub(super) fn allowance(&self) -> Allowance {
        self.allowance.clone()
    }

    pub(super) fn received(&self) -> Received {
        self.received.clone()
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() && !self.is_over {
            match self.parts.blocking_recv() {
                Some(Arrived::Part(part)) => self.part = part,
                Some(Arrived::End) => self.is_over = true,
                None => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client went away")),
            }
        }
        let left = self.allowance.0.get();
        if left == 0 && !self.part.is_empty() {
            return Err(io::Error::other("a header is too long"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let count = self.part.len().min(buffer.len()).min(most);
        self.part.copy_to_slice(buffer.get_mut(..count).unwrap_or_default());
        self.allowance.0.set(left - count as u64);
        self.received.0.set(self.received.bytes() + count as u64);
        Ok(count)
    }
}
