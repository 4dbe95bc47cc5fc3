//! The beginning and the end of a text of any length, in bounded memory.

use std::collections::VecDeque;

/// What was folded since the last [`super::Fold::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::shell) struct Folded {
    /// The first characters.
    pub(in crate::shell) head: String,
    /// The last characters; follows `head` directly if nothing is missing.
    pub(in crate::shell) tail: String,
    /// How many characters between them are gone.
    pub(in crate::shell) dropped: u64,
}

/// The first half and the last half of `limit` characters.
pub(super) struct Kept {
    limit: usize,
    head: String,
    head_chars: usize,
    tail: VecDeque<char>,
    dropped: u64,
}

impl Kept {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, head: String::new(), head_chars: 0, tail: VecDeque::new(), dropped: 0 }
    }

    pub(super) fn push(&mut self, char: char) {
        let half = self.limit / 2;
        if self.head_chars < half {
            self.head.push(char);
            self.head_chars += 1;
            return;
        }
        if self.tail.len() == self.limit - half {
            self.tail.pop_front();
            self.dropped += 1;
        }
        self.tail.push_back(char);
    }

    pub(super) fn extend(&mut self, chars: &[char]) {
        let half = self.limit / 2;
        let (head, rest) = chars.split_at(chars.len().min(half.saturating_sub(self.head_chars)));
        self.head.extend(head);
        self.head_chars += head.len();
        let room = self.limit - half;
        let last = &rest[rest.len().saturating_sub(room)..];
        let over = (self.tail.len() + last.len()).saturating_sub(room);
        self.tail.drain(..over);
        self.tail.extend(last);
        self.dropped += (over + rest.len() - last.len()) as u64;
    }

    pub(super) fn take(&mut self) -> Folded {
        let taken = std::mem::replace(self, Self::new(self.limit));
        Folded { head: taken.head, tail: taken.tail.into_iter().collect(), dropped: taken.dropped }
    }

    /// How many characters of the tail there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.tail.capacity()
    }
}
