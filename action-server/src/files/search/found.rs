//! Collects matches of all files, with limits on their number and size.

use protocol::sandbox_api::GrepMatch;

/// Maximum size of a line in a match.
const MAX_LINE_BYTES: usize = 4 << 10;

/// Maximum size of all matches.
const MAX_BYTES: usize = 8 << 20;

/// The matches so far.
#[derive(Debug)]
pub(super) struct MatchCollector {
    pub(super) matches: Vec<GrepMatch>,
    /// A match was dropped.
    pub(super) is_full: bool,
    max_matches: usize,
    bytes: usize,
}

impl MatchCollector {
    pub(super) fn new(max_matches: usize) -> Self {
        Self {
            matches: Vec::new(),
            is_full: false,
            max_matches,
            bytes: 0,
        }
    }

    /// Adds a match, or drops it and sets `is_full`.
    pub(super) fn push(
        &mut self,
        path: &str,
        line: u64,
        column: usize,
        text: &[u8],
        before: &[&[u8]],
    ) {
        self.is_full |= self.matches.len() >= self.max_matches || self.bytes >= MAX_BYTES;
        if self.is_full {
            return;
        }
        self.bytes += path.len();
        let before = before.iter().map(|line| self.text(line)).collect();
        let (path, column, text) = (path.to_owned(), column as u64 + 1, self.text(text));
        self.matches.push(GrepMatch {
            path,
            line,
            column,
            text,
            before,
            after: Vec::new(),
        });
    }

    /// Adds a line of context after the last match.
    pub(super) fn push_after(&mut self, line: &[u8]) {
        let text = self.text(line);
        if let Some(last) = self.matches.last_mut() {
            last.after.push(text);
        }
    }

    fn text(&mut self, line: &[u8]) -> String {
        let line = without_end(line);
        let text = String::from_utf8_lossy(line.get(..MAX_LINE_BYTES).unwrap_or(line)).into_owned();
        self.bytes += text.len();
        text
    }
}

pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}
