//! Redacts a stream of bytes.

use super::redactor::{Redactor, redact_ranges};

/// Buffers what may be the start of a secret until that is decided: at most a few times the longest spelling.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    held: Vec<u8>,
}

impl StreamRedactor {
    /// Creates a redactor of an empty stream.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new() }
    }

    /// Adds a chunk, and returns the redacted bytes that are decided.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(known) = &self.redactor.known else { return piece.to_vec() };
        self.held.extend_from_slice(piece);
        let (mut found, pending_start) = known.find_with_pending(&self.held);
        // A secret in which another one may start is decided together with that.
        let begins_before = |at: usize| found.iter().find(|found| found.start < at && at < found.end);
        let decided = begins_before(pending_start).map_or(pending_start, |found| found.start);
        found.retain(|found| found.start < decided);
        let rest = self.held.split_off(decided);
        redact_ranges(&std::mem::replace(&mut self.held, rest), &found)
    }

    /// Ends the stream, and returns the buffered bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.redactor.bytes(&held).into_owned()
    }
}
