//! The latest output in memory, in pieces that readers share without copying.

use std::collections::VecDeque;

use bytes::Bytes;

/// Size of a complete piece. Shorter output is collected, which bounds the overhead per byte.
const PIECE_BYTES: usize = 16 << 10;

/// A buffer of output, and the offset of its first byte.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    start: u64,
    /// Complete pieces, oldest first.
    pieces: VecDeque<Bytes>,
    pieces_bytes: usize,
    /// Output after the pieces; shorter than [`PIECE_BYTES`].
    tail: Vec<u8>,
}

impl OutputBuffer {
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.len() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.pieces_bytes + self.tail.len()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if bytes.len() >= PIECE_BYTES {
            self.push_owned(Bytes::copy_from_slice(bytes));
            return;
        }
        self.tail.extend_from_slice(bytes);
        if self.tail.len() >= PIECE_BYTES {
            self.finish_tail();
        }
    }

    pub(super) fn push_owned(&mut self, bytes: Bytes) {
        if bytes.len() < PIECE_BYTES {
            self.push(&bytes);
            return;
        }
        self.finish_tail();
        self.add(bytes);
    }

    fn finish_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.add(tail.into());
        }
    }

    fn add(&mut self, bytes: Bytes) {
        self.pieces_bytes += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Returns at least one byte from `cursor` on. `None` if it is outside of the buffer.
    pub(super) fn read(&self, cursor: u64) -> Option<Bytes> {
        let mut skip = usize::try_from(cursor.checked_sub(self.start)?).ok()?;
        for piece in &self.pieces {
            match skip.checked_sub(piece.len()) {
                Some(rest) => skip = rest,
                None => return Some(piece.slice(skip..)),
            }
        }
        let bytes = self.tail.get(skip..).filter(|bytes| !bytes.is_empty())?;
        Some(Bytes::copy_from_slice(bytes))
    }

    /// Returns the oldest complete pieces, with `bytes` bytes in total, or all of them.
    pub(super) fn oldest(&mut self, bytes: usize) -> Vec<Bytes> {
        self.finish_tail();
        let mut length = 0;
        let is_needed = |piece: &&Bytes| {
            let is_needed = length < bytes;
            length += piece.len();
            is_needed
        };
        self.pieces.iter().take_while(is_needed).cloned().collect()
    }

    /// Drops the oldest `count` pieces.
    pub(super) fn drop_oldest(&mut self, count: usize) {
        for piece in self.pieces.drain(..count.min(self.pieces.len())) {
            self.start += piece.len() as u64;
            self.pieces_bytes -= piece.len();
        }
    }

    /// Frees the capacity reserved for more output.
    pub(super) fn close(&mut self) {
        self.tail.shrink_to_fit();
        self.pieces.shrink_to_fit();
    }
}
