//! Finds a set of spellings in bytes, in one pass.

use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};

/// The quickest automaton takes half a KiB for each byte of what it looks for: not for more than this.
const MOST_FOR_THE_QUICKEST: usize = 32 << 10;

pub(super) struct Finder {
    automaton: AhoCorasick,
    /// In order, to find those that begin in a certain way.
    spellings: Vec<Vec<u8>>,
    longest: usize,
}

impl Finder {
    /// Nothing when all of them are too much for an automaton.
    pub(super) fn of(mut spellings: Vec<Vec<u8>>) -> Option<Self> {
        spellings.sort();
        spellings.dedup();
        let longest = spellings.iter().map(Vec::len).max().unwrap_or(0);
        let length: usize = spellings.iter().map(Vec::len).sum();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((length > MOST_FOR_THE_QUICKEST).then_some(AhoCorasickKind::ContiguousNFA))
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

    /// Where the first spelling may begin that has not come to its end.
    pub(super) fn undecided(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        let begins_one = |start: &usize| {
            let rest = bytes.get(*start..).unwrap_or_default();
            let next = self.spellings.partition_point(|spelling| spelling.as_slice() <= rest);
            self.spellings.get(next).is_some_and(|spelling| spelling.starts_with(rest))
        };
        (from..bytes.len()).find(begins_one).unwrap_or(bytes.len())
    }
}
