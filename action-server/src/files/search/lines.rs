//! Collects the lines that a searcher finds, with their context, up to bounds on count and bytes.

use std::io;

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};
use protocol::sandbox_api::GrepMatch;

/// Told of one line.
const MAX_LINE_BYTES: usize = 4 << 10;

/// Told of all lines.
const MAX_BYTES: usize = 8 << 20;

/// What was found so far, in all files.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) matches: Vec<GrepMatch>,
    pub(super) is_full: bool,
    max_matches: usize,
    bytes: usize,
}

/// Collects from one file.
pub(super) struct OfFile<'a> {
    path: &'a str,
    matcher: &'a RegexMatcher,
    found: &'a mut Found,
    /// Lines that come before the next match.
    before: Vec<String>,
}

impl Found {
    pub(super) fn at_most(max_matches: usize) -> Self {
        Self { matches: Vec::new(), is_full: false, max_matches, bytes: 0 }
    }

    pub(super) fn of_file<'a>(&'a mut self, path: &'a str, matcher: &'a RegexMatcher) -> OfFile<'a> {
        OfFile { path, matcher, found: self, before: Vec::new() }
    }

    fn text(&mut self, line: &[u8]) -> String {
        let text = String::from_utf8_lossy(line.get(..MAX_LINE_BYTES).unwrap_or(line)).into_owned();
        self.bytes += text.len();
        text
    }

    fn takes_more(&mut self) -> bool {
        self.is_full |= self.matches.len() >= self.max_matches || self.bytes >= MAX_BYTES;
        !self.is_full
    }
}

impl Sink for OfFile<'_> {
    type Error = io::Error;

    /// The one match too many is not told, but that there is one.
    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if !self.found.takes_more() {
            return Ok(false);
        }
        let line = without_end(found.bytes());
        let first = self.matcher.find(line).ok().flatten().map_or(0, |first| first.start());
        let text = self.found.text(line);
        self.found.bytes += self.path.len();
        self.found.matches.push(GrepMatch {
            path: self.path.to_owned(),
            line: found.line_number().unwrap_or(0),
            column: first as u64 + 1,
            text,
            before: std::mem::take(&mut self.before),
            after: Vec::new(),
        });
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let text = self.found.text(without_end(context.bytes()));
        match (context.kind(), self.found.matches.last_mut()) {
            (SinkContextKind::After, Some(last)) => last.after.push(text),
            _ => self.before.push(text),
        }
        Ok(true)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
