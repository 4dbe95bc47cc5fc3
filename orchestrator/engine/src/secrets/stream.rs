//! Takes secrets out of bytes that come in pieces.

use super::redactor::{HIDDEN, Redactor};

/// Holds back what may be the beginning of a secret until it is known whether it is one: less than the longest spelling.
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
        let undecided = self.undecided();
        let mut shown = Vec::with_capacity(self.held.len());
        let mut at = 0;
        for found in known.automaton.find_iter(&self.held) {
            if found.start() >= undecided {
                break;
            }
            shown.extend_from_slice(self.held.get(at..found.start()).unwrap_or_default());
            shown.extend_from_slice(HIDDEN.as_bytes());
            at = found.end();
        }
        shown.extend_from_slice(self.held.get(at..undecided).unwrap_or_default());
        self.held.drain(..at.max(undecided));
        shown
    }

    /// What was held back: no more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        self.redactor.bytes(&held).into_owned()
    }

    /// Where the first spelling may begin that has not come to its end.
    fn undecided(&self) -> usize {
        let Some(known) = &self.redactor.known else { return self.held.len() };
        let from = self.held.len().saturating_sub(known.longest.saturating_sub(1));
        let begins_one = |start: &usize| {
            let rest = self.held.get(*start..).unwrap_or_default();
            let next = known.spellings.partition_point(|spelling| spelling.as_slice() <= rest);
            known.spellings.get(next).is_some_and(|spelling| spelling.starts_with(rest))
        };
        (from..self.held.len()).find(begins_one).unwrap_or(self.held.len())
    }
}
