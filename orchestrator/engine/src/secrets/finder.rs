//! Searches bytes for a set of spellings, in one pass.
//!
//! The automaton has only the starts of long spellings, which are compared where their start
//! occurs: it would take a hundred megabytes for a few long values.

use std::cmp::Reverse;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};

/// Length up to which a spelling is in the automaton, in bytes. Most are shorter.
const MAX_START: usize = 64;

/// Number of bytes that a search may compare in vain, at least and for each byte of the text.
/// Beyond it, the start of a spelling is taken for the whole: a text that repeats the start of a
/// long value would be compared with it at each byte.
const MIN_COMPARED_BYTES: usize = 16 << 20;
const COMPARED_PER_BYTE: usize = 64;

/// Number of bytes that the end of a text may have in common with spellings, before one may start
/// at the next byte. Each chunk of a stream is compared.
const MAX_PENDING_COMPARED_BYTES: usize = 1 << 20;

/// Maximum total length of the starts for a DFA, in bytes. It takes half a KiB for each of them.
const MAX_DFA_BYTES: usize = 32 << 10;

pub(super) struct SpellingFinder {
    automaton: AhoCorasick,
    /// The patterns of the automaton.
    starts: Vec<SpellingStart>,
    /// Sorted, to find those with a given prefix.
    spellings: Vec<Vec<u8>>,
    longest: usize,
}

/// The start that some spellings have in common.
struct SpellingStart {
    /// These spellings, the longest first.
    spellings: Vec<usize>,
    /// The longest other start that this one begins with.
    shorter: Option<usize>,
}

impl SpellingFinder {
    /// Builds the automaton. `None` if the spellings are too long for it.
    pub(super) fn new(spellings: Vec<Vec<u8>>) -> Option<Self> {
        Self::with_max_start(spellings, MAX_START)
    }

    fn with_max_start(mut spellings: Vec<Vec<u8>>, max_start: usize) -> Option<Self> {
        spellings.sort();
        spellings.dedup();
        let longest = spellings.iter().map(Vec::len).max().unwrap_or(0);
        let (mut patterns, mut starts) = (Vec::<&[u8]>::new(), Vec::<SpellingStart>::new());
        for (index, spelling) in spellings.iter().enumerate() {
            let pattern = spelling.get(..max_start).unwrap_or(spelling);
            if patterns.last() != Some(&pattern) {
                // As they are sorted, the one before begins with all shorter starts of this one, or
                // is one.
                let mut shorter = starts.len().checked_sub(1);
                while let Some(other) = shorter
                    && !patterns
                        .get(other)
                        .is_some_and(|other| pattern.starts_with(other))
                {
                    shorter = starts.get(other).and_then(|other| other.shorter);
                }
                patterns.push(pattern);
                starts.push(SpellingStart {
                    spellings: Vec::new(),
                    shorter,
                });
            }
            if let Some(start) = starts.last_mut() {
                start.spellings.push(index);
            }
        }
        let length: usize = patterns.iter().map(|pattern| pattern.len()).sum();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind((length > MAX_DFA_BYTES).then_some(AhoCorasickKind::ContiguousNFA))
            .build(&patterns)
            .ok()?;
        for start in &mut starts {
            start
                .spellings
                .sort_by_key(|index| Reverse(spellings.get(*index).map(Vec::len)));
        }
        Some(Self {
            automaton,
            starts,
            spellings,
            longest,
        })
    }

    pub(super) fn count(&self) -> usize {
        self.spellings.len()
    }

    /// Returns the ranges of spellings, the leftmost and of those the longest, without overlap.
    pub(super) fn find(&self, bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
        self.find_comparing(
            bytes,
            bytes
                .len()
                .saturating_mul(COMPARED_PER_BYTE)
                .max(MIN_COMPARED_BYTES),
        )
    }

    /// Like [`find`](Self::find), with the number of bytes that may be compared in vain.
    fn find_comparing(
        &self,
        bytes: &[u8],
        mut max_compared: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let mut from = 0;
        std::iter::from_fn(move || {
            loop {
                let found = self.automaton.find(Input::new(bytes).range(from..))?;
                let rest = bytes.get(found.start()..).unwrap_or_default();
                let pattern = found.pattern().as_usize();
                let length = match self.longest_at(rest, pattern) {
                    None if max_compared > 0 => {
                        let compared: usize = self
                            .spellings_with(pattern)
                            .map(|spelling| spelling.len().min(rest.len()))
                            .sum();
                        max_compared = max_compared.saturating_sub(compared);
                        from = found.start() + 1;
                        continue;
                    }
                    length => length.unwrap_or(found.len()),
                };
                from = found.start() + length;
                return Some(found.start()..from);
            }
        })
    }

    /// Returns the spellings with a pattern, the longest first.
    fn spellings_with(&self, pattern: usize) -> impl Iterator<Item = &Vec<u8>> {
        let starts = std::iter::successors(self.starts.get(pattern), |start| {
            self.starts.get(start.shorter?)
        });
        starts
            .flat_map(|start| &start.spellings)
            .filter_map(|index| self.spellings.get(*index))
    }

    /// Returns the length of the longest spelling at the start of `bytes`, which begin with a
    /// pattern.
    fn longest_at(&self, bytes: &[u8], pattern: usize) -> Option<usize> {
        self.spellings_with(pattern)
            .find(|spelling| bytes.starts_with(spelling))
            .map(Vec::len)
    }

    /// Returns the start of the first spelling that may continue beyond the end of `bytes`, or the
    /// end if there is none. After too many comparisons, a spelling may start at the next byte.
    pub(super) fn pending_start(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest.saturating_sub(1));
        let mut compared = 0;
        let mut starts_spelling = |start: &usize| {
            let rest = bytes.get(*start..).unwrap_or_default();
            if compared > MAX_PENDING_COMPARED_BYTES {
                return true;
            }
            let next = self
                .spellings
                .partition_point(|spelling| spelling.as_slice() <= rest);
            // The neighbours have the most in common with it.
            let neighbours = self.spellings.get(next.saturating_sub(1)..=next);
            for spelling in neighbours
                .or(self.spellings.get(next.saturating_sub(1)..))
                .into_iter()
                .flatten()
            {
                let common = spelling
                    .iter()
                    .zip(rest)
                    .take_while(|(left, right)| left == right);
                compared += common.count();
            }
            self.spellings
                .get(next)
                .is_some_and(|spelling| spelling.starts_with(rest))
        };
        (from..bytes.len())
            .find(|start| starts_spelling(start))
            .unwrap_or(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn starts_of_spellings_find_the_same_as_whole_ones(
            spellings in prop::collection::vec("[ab]{1,12}", 1..12),
            text in "[ab]{0,80}",
            max_start in 1..6_usize,
        ) {
            let whole = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings).unwrap();
            let expected: Vec<_> = whole.find_iter(&text).map(|found| found.range()).collect();
            let spellings = spellings.into_iter().map(String::into_bytes).collect();
            let finder = SpellingFinder::with_max_start(spellings, max_start).unwrap();
            prop_assert_eq!(finder.find(text.as_bytes()).collect::<Vec<_>>(), expected);
        }
    }

    /// The bytes are held back until more arrive.
    #[test]
    fn spelling_may_be_pending_after_too_many_comparisons() {
        let value = [vec![b'x'; 16_000], vec![b'y']].concat();
        let finder = SpellingFinder::new(vec![value]).unwrap();
        let text = [vec![b'x'; 15_000], vec![b'z']].concat();
        assert!((1..1_000).contains(&finder.pending_start(&text)));
        assert_eq!(finder.pending_start(b"xxz"), 3);
        assert_eq!(finder.pending_start(b"zxx"), 1);
    }

    #[test]
    fn start_counts_as_the_whole_after_too_many_comparisons() {
        let value = [vec![b'x'; 1000], vec![b'y']].concat();
        let finder = SpellingFinder::new(vec![value]).unwrap();
        let text = vec![b'x'; 10_000];
        assert_eq!(finder.find(&text).next(), None);
        let found: Vec<_> = finder.find_comparing(&text, 100_000).collect();
        assert_eq!(found.first(), Some(&(100..100 + MAX_START)));
        assert!(found.len() > 100 && found.iter().all(|found| found.len() == MAX_START));
    }
}
