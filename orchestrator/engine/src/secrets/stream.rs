//! Redacts a stream of bytes.

use super::redactor::{Redactor, redact_ranges};

/// Buffers what may be the start of a secret until that is decided: at most a few times the longest
/// spelling.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    buffered: Vec<u8>,
}

impl StreamRedactor {
    /// Creates a redactor of an empty stream.
    pub fn new(redactor: Redactor) -> Self {
        Self {
            redactor,
            buffered: Vec::new(),
        }
    }

    /// Adds a chunk, and returns the redacted bytes that are decided.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        let Some(known) = &self.redactor.known else {
            return chunk.to_vec();
        };
        self.buffered.extend_from_slice(chunk);
        let (mut found, pending_start) = known.find_with_pending(&self.buffered);
        // A secret in which another one may start is decided together with that.
        let overlapping = |at: usize| {
            found
                .iter()
                .find(|found| found.start < at && at < found.end)
        };
        let decided = overlapping(pending_start).map_or(pending_start, |found| found.start);
        found.retain(|found| found.start < decided);
        let rest = self.buffered.split_off(decided);
        redact_ranges(&std::mem::replace(&mut self.buffered, rest), &found)
    }

    /// Ends the stream, and returns the buffered bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        let buffered = std::mem::take(&mut self.buffered);
        self.redactor.bytes(&buffered).into_owned()
    }
}
