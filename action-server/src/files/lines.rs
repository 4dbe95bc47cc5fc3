//! Lines of a file, as bytes. A line includes its `\n`, which the last line may lack.

use std::fmt::Write as _;
use std::ops::Range;

/// Maximum output in characters. V0's limit; longer output costs tokens.
pub(super) const MAX_SHOWN_CHARS: usize = 16_000;

/// Marks clipped output. V0's text.
pub(super) const CLIPPED: &str = "<response clipped>";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A text and the offsets of its lines.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let after_newlines = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1);
        let starts = std::iter::once(0)
            .chain(after_newlines)
            .filter(|start| *start < bytes.len())
            .collect();
        Self { bytes, starts }
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the offset of a line. After the last line, this is the end of the text.
    pub(super) fn start(&self, index: usize) -> usize {
        self.starts.get(index).copied().unwrap_or(self.bytes.len())
    }

    /// Returns the index of the line that contains the byte at `offset`.
    pub(super) fn index_at(&self, offset: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    }

    /// Returns a line without its line end and byte order mark.
    pub(super) fn text(&self, index: usize) -> &'a [u8] {
        let line = &self.bytes[self.start(index)..self.start(index + 1)];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if index == 0 {
            line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
        } else {
            line
        }
    }

    /// Returns all lines as V0's `cat -n` shows a whole file: an empty line follows the last line
    /// end.
    pub(super) fn numbered_whole(&self) -> String {
        let ends_with_empty_line = self.bytes.last().is_none_or(|byte| *byte == b'\n');
        self.numbered_lines(0..self.count() + usize::from(ends_with_empty_line))
    }

    /// Returns the lines of `indices` in the format of `cat -n`, clipped.
    pub(super) fn numbered(&self, indices: Range<usize>) -> String {
        self.numbered_lines(indices.start..indices.end.min(self.count()))
    }

    fn numbered_lines(&self, indices: Range<usize>) -> String {
        let mut shown = String::new();
        let mut chars_left = MAX_SHOWN_CHARS;
        for index in indices {
            let line = String::from_utf8_lossy(self.text(index));
            match line.char_indices().nth(chars_left) {
                None => _ = writeln!(shown, "{:6}\t{line}", index + 1),
                Some((cut, _)) => {
                    _ = writeln!(shown, "{:6}\t{}", index + 1, &line[..cut]);
                    _ = writeln!(shown, "{CLIPPED}{}", self.clip_note(index));
                    break;
                }
            }
            chars_left = chars_left.saturating_sub(line.chars().count() + 1);
        }
        shown
    }

    fn clip_note(&self, index: usize) -> String {
        let (line, count) = (index + 1, self.count());
        format!(
            "<NOTE>Clipped in line {line} of {count}. Use `view_range` or `grep -n` to see the rest.</NOTE>"
        )
    }
}

/// Returns the offset at which a first line is inserted: after the byte order mark.
pub(super) fn after_mark(bytes: &[u8]) -> usize {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len()
    } else {
        0
    }
}

/// Converts the line ends of `text` to `\r\n` if those of `file` are, and `text` only contains
/// `\n`, as models write it.
pub(super) fn with_line_ends_of(file: &[u8], text: &str) -> String {
    let first = file.iter().position(|byte| *byte == b'\n');
    let is_crlf = first.is_some_and(|at| at > 0 && file[at - 1] == b'\r');
    if is_crlf && !text.contains('\r') {
        text.replace('\n', "\r\n")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_is_counted_when_it_has_no_line_end() {
        let count = |text: &[u8]| Lines::new(text).count();
        assert_eq!(
            [
                count(b""),
                count(b"a"),
                count(b"a\n"),
                count(b"a\n\n"),
                count(b"a\nb")
            ],
            [0, 1, 1, 2, 2]
        );
    }

    #[test]
    fn line_ends_and_byte_order_mark_are_not_shown() {
        let lines = Lines::new(b"\xef\xbb\xbfa\tb\r\n\xffc\nlast");
        assert_eq!(
            lines.numbered(0..9),
            "     1\ta\tb\n     2\t\u{fffd}c\n     3\tlast\n"
        );
        assert_eq!(
            [lines.index_at(0), lines.index_at(8), lines.index_at(99)],
            [0, 1, 2]
        );
    }

    #[test]
    fn whole_view_shows_the_empty_last_line() {
        assert_eq!(Lines::new(b"").numbered_whole(), "     1\t\n");
        assert_eq!(Lines::new(b"a\n").numbered_whole(), "     1\ta\n     2\t\n");
        assert_eq!(Lines::new(b"a").numbered_whole(), "     1\ta\n");
        assert_eq!(Lines::new(b"").numbered(0..1), "");
    }

    #[test]
    fn long_output_is_clipped_with_a_note() {
        let text = "0123456789\n".repeat(3_000);
        let shown = Lines::new(text.as_bytes()).numbered(0..3_000);
        assert!(
            shown.contains("<response clipped><NOTE>Clipped in line 1455 of 3000."),
            "{shown}"
        );
        let one_line = "x".repeat(20_000);
        let shown = Lines::new(one_line.as_bytes()).numbered(0..1);
        assert!(shown.contains(CLIPPED) && shown.len() < 17_000);
    }

    #[test]
    fn text_gets_the_line_ends_of_the_file() {
        assert_eq!(with_line_ends_of(b"a\r\nb", "x\ny"), "x\r\ny");
        assert_eq!(with_line_ends_of(b"a\r\nb", "x\r\ny"), "x\r\ny");
        assert_eq!(with_line_ends_of(b"a\nb", "x\ny"), "x\ny");
    }
}
