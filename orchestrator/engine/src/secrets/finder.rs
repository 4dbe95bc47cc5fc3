//! Searches bytes for a set of spellings, in one pass.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// Maximum total length of the spellings for a DFA, in bytes. It takes half a KiB for each of them.
const MAX_DFA_BYTES: usize = 32 << 10;

pub(super) struct SpellingFinder {
    automaton: AhoCorasick,
    /// Sorted, to find those with a given prefix.
    spellings: Vec<Vec<u8>>,
    longest: usize,
}

impl SpellingFinder {
    /// Builds the automaton. `None` if the spellings are too long for it.
    pub(super) fn new(mut spellings: Vec<Vec<u8>>) -> Option<Self> {
        spellings.sort();
        spellings.dedup();
        let longest = spellings.iter().map(Vec::len).max().unwrap_or(0);
        let length: usize = spellings.iter().map(Vec::len).sum();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((length > MAX_DFA_BYTES).then_some(AhoCorasickKind::ContiguousNFA))
            .build(&spellings)
            .ok()?;
        Some(Self { automaton, spellings, longest })
    }

    pub(super) fn count(&self) -> usize {
        self.spellings.len()
    }

    pub(super) fn find(&self, bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
        self.automaton.find_iter(bytes).map(|found| found.range())
    }

    /// Returns the start of the first spelling that may continue beyond the end of `bytes`, or the end if there is none.
    pub(super) fn pending_start(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        let starts_spelling = |start: &usize| {
            let rest = bytes.get(*start..).unwrap_or_default();
            let next = self.spellings.partition_point(|spelling| spelling.as_slice() <= rest);
            self.spellings.get(next).is_some_and(|spelling| spelling.starts_with(rest))
        };
        (from..bytes.len()).find(starts_spelling).unwrap_or(bytes.len())
    }
}
