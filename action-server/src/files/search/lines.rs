//! Searches one file block by block. The pattern is first matched against a block of many lines;
//! the line of a match is then matched again by itself.

use std::io::{self, Read};

use super::found::{MatchCollector, without_end};
use super::matcher::Matcher;

/// Size of one read.
const BLOCK_BYTES: usize = 256 << 10;

/// A file is not searched beyond a longer line.
const MAX_LINE_BYTES: usize = 8 << 20;

/// Number of lines of context.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) before: usize,
    pub(super) after: usize,
}

/// The state of a search. All offsets refer to `text`.
pub(super) struct LineSearch<'a> {
    path: &'a str,
    matcher: &'a Matcher,
    context: Context,
    found: &'a mut MatchCollector,
    /// The current block, preceded by lines that may still be context.
    text: Vec<u8>,
    /// Offset up to which the pattern was searched.
    searched: usize,
    /// Offset up to which lines were reported.
    reported: usize,
    /// Number of lines after the last match that must still be reported.
    after: usize,
    /// An offset and the number of the line that starts there, from 1.
    counted: (usize, u64),
}

impl<'a> LineSearch<'a> {
    pub(super) fn new(
        path: &'a str,
        matcher: &'a Matcher,
        context: Context,
        found: &'a mut MatchCollector,
    ) -> Self {
        Self {
            path,
            matcher,
            context,
            found,
            text: Vec::new(),
            searched: 0,
            reported: 0,
            after: 0,
            counted: (0, 1),
        }
    }

    /// Searches up to the end of the file, a NUL byte, or the maximum number of matches.
    pub(super) fn run(mut self, mut file: impl Read) -> io::Result<()> {
        loop {
            let count = file
                .by_ref()
                .take(BLOCK_BYTES as u64)
                .read_to_end(&mut self.text)?;
            let new = self.text.len() - count;
            let nul = self
                .text
                .get(new..)
                .and_then(|new| new.iter().position(|byte| *byte == 0));
            let is_last = count == 0 || nul.is_some();
            self.text
                .truncate(nul.map_or(self.text.len(), |nul| new + nul));
            // A line with a NUL byte is skipped. The last line is searched even if it has no line
            // end.
            let end = if count == 0 {
                self.text.len()
            } else {
                self.line_start(self.text.len())
            };
            self.search(end);
            if is_last || self.found.is_full || self.text.len() - end > MAX_LINE_BYTES {
                return Ok(());
            }
            self.drop_searched(end);
        }
    }

    /// Searches the lines up to `end`.
    fn search(&mut self, end: usize) {
        while self.searched < end && !self.found.is_full {
            let lines = self.text.get(..end).unwrap_or_default();
            let Some(start) = self
                .matcher
                .find(lines, self.searched)
                .filter(|start| *start < end)
            else {
                break;
            };
            let (first, last) = (
                self.line_start(start).max(self.searched),
                self.line_end(start, end),
            );
            self.report_after(first);
            let line = without_end(self.text.get(first..last).unwrap_or_default());
            if let Some(column) = self.matcher.find(line, 0) {
                self.report(first, last, column);
            }
            self.searched = last;
        }
        self.searched = end;
        self.report_after(end);
    }

    fn report(&mut self, first: usize, last: usize, column: usize) {
        let (counted, number) = self.counted;
        let passed = self.text.get(counted..first).unwrap_or_default();
        self.counted = (
            first,
            number + passed.iter().filter(|byte| **byte == b'\n').count() as u64,
        );
        let mut starts = vec![first];
        let mut start = first;
        while starts.len() <= self.context.before && start > self.reported {
            start = self.line_start(start - 1);
            starts.push(start);
        }
        let before = starts.windows(2).rev().filter_map(|of| match of {
            [end, start] => self.text.get(*start..*end),
            _ => None,
        });
        let before: Vec<&[u8]> = before.collect();
        let text = self.text.get(first..last).unwrap_or_default();
        self.found
            .push(self.path, self.counted.1, column, text, &before);
        (self.reported, self.after) = (last, self.context.after);
    }

    /// Reports context after the last match, up to `end`.
    fn report_after(&mut self, end: usize) {
        while self.after > 0 && self.reported < end && !self.found.is_full {
            let last = self.line_end(self.reported, end);
            self.found
                .push_after(self.text.get(self.reported..last).unwrap_or_default());
            (self.reported, self.after) = (last, self.after - 1);
        }
    }

    /// Drops text before `end` that cannot be context any more.
    fn drop_searched(&mut self, end: usize) {
        let mut kept = end;
        for _ in 0..self.context.before {
            kept = if kept > 0 {
                self.line_start(kept - 1)
            } else {
                0
            };
        }
        let (counted, number) = self.counted;
        let passed = self.text.get(counted..kept).unwrap_or_default();
        let lines = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.counted = (counted.max(kept) - kept, number + lines);
        self.text.drain(..kept);
        (self.searched, self.reported) = (end - kept, self.reported.saturating_sub(kept));
    }

    /// Returns the start of the line that contains `offset`.
    fn line_start(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or_default();
        before
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1)
    }

    /// Returns the start of the next line.
    fn line_end(&self, offset: usize, end: usize) -> usize {
        let after = self.text.get(offset..end).unwrap_or_default();
        after
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(end, |at| offset + at + 1)
    }
}
