//! Looks through one file, block by block: the pattern runs over many lines at once, and what it finds is looked at
//! again within its line.

use std::io::{self, Read};

use super::found::{Found, without_end};
use super::matcher::Matcher;

/// Read at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Files with longer lines are looked at no further.
const MAX_LINE_BYTES: usize = 8 << 20;

/// How many lines of context are told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    pub(super) before: usize,
    pub(super) after: usize,
}

/// A file that is being looked through. All offsets are into `text`.
pub(super) struct Lines<'a> {
    path: &'a str,
    matcher: &'a Matcher,
    context: Context,
    found: &'a mut Found,
    /// What is looked at, and before it the lines that may still be context.
    text: Vec<u8>,
    /// Up to here the pattern was looked for.
    searched: usize,
    /// Up to here lines were told.
    told: usize,
    /// Lines after the last match that are still to be told.
    after: usize,
    /// The line that begins at an offset, from 1.
    counted: (usize, u64),
}

impl<'a> Lines<'a> {
    pub(super) fn of(path: &'a str, matcher: &'a Matcher, context: Context, found: &'a mut Found) -> Self {
        Self {
            path,
            matcher,
            context,
            found,
            text: Vec::new(),
            searched: 0,
            told: 0,
            after: 0,
            counted: (0, 1),
        }
    }

    /// To the file's end, to a NUL byte, which no text has, or until enough was found.
    pub(super) fn look_through(mut self, mut file: impl Read) -> io::Result<()> {
        loop {
            let count = file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut self.text)?;
            let new = self.text.len() - count;
            let nul = self.text.get(new..).and_then(|new| new.iter().position(|byte| *byte == 0));
            let is_last = count == 0 || nul.is_some();
            self.text.truncate(nul.map_or(self.text.len(), |nul| new + nul));
            // A line with a NUL byte is not looked at, a last one without its end is.
            let end = if count == 0 { self.text.len() } else { self.line_start(self.text.len()) };
            self.search(end);
            if is_last || self.found.is_full || self.text.len() - end > MAX_LINE_BYTES {
                return Ok(());
            }
            self.forget(end);
        }
    }

    /// In the lines up to `end`.
    fn search(&mut self, end: usize) {
        while self.searched < end && !self.found.is_full {
            let lines = self.text.get(..end).unwrap_or_default();
            let Some(start) = self.matcher.find(lines, self.searched).filter(|start| *start < end) else {
                break;
            };
            let (first, last) = (self.line_start(start).max(self.searched), self.line_end(start, end));
            self.tell_after(first);
            let line = without_end(self.text.get(first..last).unwrap_or_default());
            if let Some(column) = self.matcher.find(line, 0) {
                self.tell(first, last, column);
            }
            self.searched = last;
        }
        self.searched = end;
        self.tell_after(end);
    }

    fn tell(&mut self, first: usize, last: usize, column: usize) {
        let (counted, number) = self.counted;
        let passed = self.text.get(counted..first).unwrap_or_default();
        self.counted = (first, number + passed.iter().filter(|byte| **byte == b'\n').count() as u64);
        let mut starts = vec![first];
        let mut start = first;
        while starts.len() <= self.context.before && start > self.told {
            start = self.line_start(start - 1);
            starts.push(start);
        }
        let before = starts.windows(2).rev().filter_map(|of| match of {
            [end, start] => self.text.get(*start..*end),
            _ => None,
        });
        let before: Vec<&[u8]> = before.collect();
        let text = self.text.get(first..last).unwrap_or_default();
        self.found.push(self.path, self.counted.1, column, text, &before);
        (self.told, self.after) = (last, self.context.after);
    }

    /// Context of the last match, up to `end`.
    fn tell_after(&mut self, end: usize) {
        while self.after > 0 && self.told < end && !self.found.is_full {
            let last = self.line_end(self.told, end);
            self.found.push_after(self.text.get(self.told..last).unwrap_or_default());
            (self.told, self.after) = (last, self.after - 1);
        }
    }

    /// What is before `end` and cannot be context any more.
    fn forget(&mut self, end: usize) {
        let mut kept = end;
        for _ in 0..self.context.before {
            kept = if kept > 0 { self.line_start(kept - 1) } else { 0 };
        }
        let (counted, number) = self.counted;
        let passed = self.text.get(counted..kept).unwrap_or_default();
        let lines = passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.counted = (counted.max(kept) - kept, number + lines);
        self.text.drain(..kept);
        (self.searched, self.told) = (end - kept, self.told.saturating_sub(kept));
    }

    /// Where the line begins that holds what is at `offset`.
    fn line_start(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or_default();
        before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
    }

    /// Where the next line begins.
    fn line_end(&self, offset: usize, end: usize) -> usize {
        let after = self.text.get(offset..end).unwrap_or_default();
        after.iter().position(|byte| *byte == b'\n').map_or(end, |at| offset + at + 1)
    }
}
