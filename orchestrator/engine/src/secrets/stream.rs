//! Takes secrets out of bytes that come in pieces.

use super::redactor::{Redactor, hide};

/// Holds back what may be the beginning of a secret until it is known whether it is one: a few times the longest spelling
/// at most.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    held: Vec<u8>,
}

impl StreamRedactor {
    /// Nothing has come yet.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new() }
    }

    /// Takes the next piece, and gives what can be shown by now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(known) = &self.redactor.known else { return piece.to_vec() };
        self.held.extend_from_slice(piece);
        let (mut found, undecided) = known.find_begun(&self.held);
        // One that another may begin in goes with that.
        let begins_before = |at: usize| found.iter().find(|found| found.start < at && at < found.end);
        let decided = begins_before(undecided).map_or(undecided, |found| found.start);
        found.retain(|found| found.start < decided);
        let rest = self.held.split_off(decided);
        hide(&std::mem::replace(&mut self.held, rest), &found)
    }

    /// What was held back: no more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.redactor.bytes(&held).into_owned()
    }
}
