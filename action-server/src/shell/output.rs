//! Converts the output of a terminal to the text that remains visible.
//!
//! Pure and incremental: the text is the same for any chunk size. Escape sequences are removed, a
//! progress bar that redraws its line becomes one line, invalid UTF-8 is replaced. Only a single
//! line is emulated: movements to other lines are ignored, because programs do not use them with
//! `TERM=dumb`. A program that switches to the alternate screen, as an editor does with another
//! `TERM`, is represented by its last [`screen`].
//!
//! Memory is bounded: the first and the last half of the limit are kept, and the characters between
//! them are counted.

mod plain;
mod screen;
mod text_buffer;

use vte::{Params, Parser, Perform};

use screen::AlternateScreen;
pub(crate) use text_buffer::FoldedText;
use text_buffer::TextBuffer;

/// Maximum number of characters of a line that can be overwritten. Progress bars are shorter. The
/// start of a longer line is final, so that a file without newlines is not stored twice.
const MAX_LINE_CHARS: usize = 16 * 1024;

const ESCAPE: u8 = 0x1b;

/// Maximum number of alternate screens of a command. Output that switches screens continuously
/// would be slow.
const MAX_SCREENS: u32 = 64;

/// The text of one command's output.
pub(crate) struct OutputFold {
    parser: Parser,
    line: CursorLine,
    /// An incomplete character, at most 3 bytes. The parser of vte 0.15 would lose the character
    /// after it.
    cut: Vec<u8>,
    /// The alternate screen, while it is shown.
    screen: Option<AlternateScreen>,
    /// Number of alternate screens so far.
    screens: u32,
}

impl OutputFold {
    /// Creates a fold that keeps `limit` characters.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            parser: Parser::new(),
            line: CursorLine::new(limit),
            cut: Vec::new(),
            screen: None,
            screens: 0,
        }
    }

    /// Processes output.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.cut.is_empty() {
            return self.feed_joined(bytes);
        }
        let mut joined = std::mem::take(&mut self.cut);
        joined.extend_from_slice(bytes);
        self.feed_joined(&joined);
    }

    fn feed_joined(&mut self, bytes: &[u8]) {
        let (whole, cut) = bytes.split_at(bytes.len() - cut_character(bytes));
        let mut rest = whole;
        while !rest.is_empty() {
            let length = self.advance(rest);
            rest = &rest[length..];
        }
        self.cut.extend_from_slice(cut);
    }

    /// Processes output up to a switch of parsers. Returns the number of bytes.
    fn advance(&mut self, bytes: &[u8]) -> usize {
        if self.line.is_plain && self.screen.is_none() {
            return self.advance_plain(bytes);
        }
        let length = match &mut self.screen {
            None => self.parser.advance_until_terminated(&mut self.line, bytes),
            Some(screen) => {
                let length = self
                    .parser
                    .advance_until_terminated(&mut screen.watch, bytes);
                screen.draw(&bytes[..length]);
                length
            }
        };
        let switch = match &mut self.screen {
            None => &mut self.line.switch,
            Some(screen) => &mut screen.watch.switch,
        };
        match switch.take() {
            Some(true) if self.screen.is_none() && self.screens < MAX_SCREENS => {
                self.screens += 1;
                self.screen = Some(AlternateScreen::new());
            }
            Some(false) => {
                if let Some(screen) = self.screen.take() {
                    self.line.put_screen(&screen);
                }
            }
            _ => {}
        }
        length
    }

    /// Processes output outside of escape sequences without the slower parser.
    fn advance_plain(&mut self, bytes: &[u8]) -> usize {
        let length = plain::text_length(bytes);
        if length > 0 {
            self.line.put_text(&bytes[..length]);
            return length;
        }
        match bytes[0] {
            ESCAPE => {
                self.line.is_plain = false;
                0
            }
            control if control.is_ascii() => {
                self.line.execute(control);
                1
            }
            _ => {
                let length = bytes.iter().position(u8::is_ascii).unwrap_or(bytes.len());
                self.parser.advance(&mut self.line, &bytes[..length]);
                length
            }
        }
    }

    /// Returns the text since the last call. An incomplete escape sequence or character is
    /// continued; an incomplete line cannot be redrawn any more.
    pub(crate) fn take_text(&mut self) -> FoldedText {
        self.line.settle();
        if let Some(screen) = &self.screen {
            self.line.put_screen(screen);
        }
        self.line.kept.take_text()
    }
}

/// Returns the number of bytes of an incomplete character at the end.
fn cut_character(bytes: &[u8]) -> usize {
    let is_cut = |length: &usize| {
        std::str::from_utf8(&bytes[bytes.len() - length..])
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=bytes.len().min(3)).find(is_cut).unwrap_or(0)
}

/// The line with the cursor.
struct CursorLine {
    kept: TextBuffer,
    /// The line, if it is only appended text. Then `chars` is empty.
    text: Vec<u8>,
    chars: Vec<char>,
    column: usize,
    /// A switch to (`true`) or from the alternate screen.
    switch: Option<bool>,
    /// Whether all escape sequences so far are complete.
    is_plain: bool,
}

impl CursorLine {
    fn new(limit: usize) -> Self {
        let (text, chars) = (Vec::new(), Vec::new());
        Self {
            kept: TextBuffer::new(limit),
            text,
            chars,
            column: 0,
            switch: None,
            is_plain: true,
        }
    }

    fn put_screen(&mut self, screen: &AlternateScreen) {
        self.settle();
        screen.text().chars().for_each(|char| self.kept.push(char));
    }

    /// Appends printable ASCII and tabs.
    fn put_text(&mut self, text: &[u8]) {
        if !self.chars.is_empty() || self.column != self.text.len() {
            return text.iter().for_each(|&byte| self.put(byte.into()));
        }
        let (fits, rest) = text.split_at(text.len().min(MAX_LINE_CHARS - self.text.len()));
        self.text.extend_from_slice(fits);
        self.column = self.text.len();
        if !rest.is_empty() {
            self.settle();
            self.put_text(rest);
        }
    }

    fn settle(&mut self) {
        // Cannot fail: it contains only ASCII.
        self.kept
            .extend_ascii(std::str::from_utf8(&self.text).unwrap_or_default());
        self.chars.iter().for_each(|&char| self.kept.push(char));
        self.text.clear();
        self.chars.clear();
        self.column = 0;
    }

    /// Converts the line to characters, which can be overwritten.
    fn chars(&mut self) -> &mut Vec<char> {
        self.chars.extend(self.text.drain(..).map(char::from));
        &mut self.chars
    }

    fn put(&mut self, char: char) {
        if self.column >= MAX_LINE_CHARS {
            self.settle();
        }
        let column = self.column;
        let chars = self.chars();
        if column == chars.len() {
            chars.push(char);
        } else {
            // The cursor may be to the right of the text.
            if column > chars.len() {
                chars.resize(column + 1, ' ');
            }
            chars[column] = char;
        }
        self.column += 1;
    }

    fn move_to(&mut self, column: usize) {
        self.column = column.min(MAX_LINE_CHARS - 1);
    }

    /// Erases a part of the line (CSI K).
    fn erase(&mut self, part: u16) {
        let column = self.column;
        let chars = self.chars();
        match part {
            0 => chars.truncate(column),
            1 => chars
                .iter_mut()
                .take(column + 1)
                .for_each(|char| *char = ' '),
            2 => chars.clear(),
            _ => {}
        }
    }

    /// Deletes characters (CSI P).
    fn delete(&mut self, count: usize) {
        let column = self.column;
        let chars = self.chars();
        let start = column.min(chars.len());
        let end = start.saturating_add(count).min(chars.len());
        chars.drain(start..end);
    }
}

impl Perform for CursorLine {
    fn terminated(&self) -> bool {
        self.is_plain || self.switch.is_some()
    }

    fn esc_dispatch(&mut self, _intermediates: &[u8], _ignore: bool, _byte: u8) {
        self.is_plain = true;
    }

    fn print(&mut self, char: char) {
        // The parser treats DEL as a printable character.
        if char != '\x7f' {
            self.put(char);
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.settle();
                self.kept.push('\n');
            }
            b'\r' => self.column = 0,
            0x08 => self.column = self.column.saturating_sub(1),
            // Tabs are kept, not expanded: a Makefile must be unchanged after `cat`.
            b'\t' => self.put('\t'),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        self.is_plain = true;
        if ignore || !intermediates.is_empty() {
            self.switch = screen::switch(params, intermediates, action);
            return;
        }
        let first = params
            .iter()
            .next()
            .and_then(|values| values.first())
            .copied()
            .unwrap_or(0);
        let count = usize::from(first.max(1));
        match action {
            'K' => self.erase(first),
            'C' => self.move_to(self.column.saturating_add(count)),
            'D' => self.move_to(self.column.saturating_sub(count)),
            'G' => self.move_to(count - 1),
            'P' => self.delete(count),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fold<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> FoldedText {
        let mut fold = OutputFold::new(limit);
        chunks.into_iter().for_each(|chunk| fold.feed(chunk));
        fold.take_text()
    }

    fn text(bytes: &[u8]) -> String {
        let folded = fold(10_000, [bytes]);
        folded.head + &folded.tail
    }

    #[test]
    fn lines_and_tabs_are_kept() {
        assert_eq!(text(b"a\tb\r\n\n  c\n"), "a\tb\n\n  c\n");
    }

    #[test]
    fn full_screen_program_is_folded_to_its_last_screen() {
        let editor =
            b"before\n\x1b[?1049h\x1b[2J\x1b[1;1Hone\x1b[3;2Hthree\x1b[1;1HO\x1b[?1049lafter";
        assert_eq!(text(editor), "before\nOne\n\n three\nafter");
        assert_eq!(text(b"\x1b[?47h\x1b[5;1Hnow"), "\n\n\n\nnow\n");
        let mut fold = OutputFold::new(1000);
        fold.feed(b"\x1b[?1049hfirst");
        assert_eq!(fold.take_text().head, "first\n");
        fold.feed(b"\rthen, second\x1b[?1049l\x1b[?1049lend");
        assert_eq!(fold.take_text().head, "then, second\nend");
    }

    #[test]
    fn progress_bar_is_folded_to_its_last_state() {
        assert_eq!(text(b" 10%\r 20%\r100%\ndone"), "100%\ndone");
        assert_eq!(text(b"downloading\rdone\x1b[K\n"), "done\n");
        assert_eq!(text(b"downloading\rdone\n"), "doneloading\n");
        assert_eq!(text(b"long text\x1b[2K\rok"), "ok");
    }

    #[test]
    fn cursor_moves_within_the_line() {
        assert_eq!(text(b"abc\x08\x08X"), "aXc");
        assert_eq!(text(b"abcdef\x1b[4D\x1b[2P|"), "ab|f");
        assert_eq!(text(b"abc\x1b[1G>\x1b[2C."), ">bc.");
        assert_eq!(text(b"\x1b[3Cx"), "   x");
    }

    #[test]
    fn colours_titles_and_bells_are_removed() {
        assert_eq!(
            text(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x07\x1bP1;2q#\x1b\\."),
            "red link."
        );
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(text(b"a\xffb\xc3\xa9"), "a\u{fffd}b\u{e9}");
    }

    #[test]
    fn head_and_tail_are_kept_and_the_rest_is_counted() {
        let folded = fold(6, [b"0123456789\n".as_slice()]);
        assert_eq!(
            folded,
            FoldedText {
                head: "012".into(),
                tail: "89\n".into(),
                dropped: 5
            }
        );
    }

    #[test]
    fn memory_is_bounded_for_a_line_of_ten_megabytes() {
        let mut fold = OutputFold::new(30_000);
        for _ in 0..160 {
            fold.feed(&[b'x'; 64 * 1024]);
        }
        assert!(fold.line.text.capacity() <= 2 * MAX_LINE_CHARS);
        assert!(fold.line.kept.capacity() <= 2 * (2 * 15_000 + MAX_LINE_CHARS));
        let folded = fold.take_text();
        assert_eq!(
            folded.head.len() as u64 + folded.tail.len() as u64 + folded.dropped,
            160 * 64 * 1024
        );
    }

    #[test]
    fn text_is_returned_only_once() {
        let mut fold = OutputFold::new(100);
        fold.feed(b"50%");
        assert_eq!(fold.take_text().head, "50%");
        fold.feed(b"\r60%\x1b[");
        assert_eq!(fold.take_text().head, "60%");
        fold.feed(b"31m!\n");
        assert_eq!(fold.take_text().head, "!\n");
    }

    fn terminal_bytes() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            proptest::sample::select(vec![
                "\r",
                "\n",
                "\x08",
                "\x1b[K",
                "\x1b[1K",
                "\x1b[2K",
                "\x1b[3C",
                "\x1b[2D",
                "\x1b[5G",
                "\x1b[2P",
                "\x1b]0;t\x07",
                "\x1b[65535C",
                "\x1b[?1049h",
                "\x1b[?47l",
                "\x1b[?1049l",
                "\x1b[3;4H",
                "\u{1f600}",
                "é",
                "\x1b",
            ])
            .prop_map(|text| text.as_bytes().to_vec()),
            "[a-z ]{0,12}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..6),
        ];
        proptest::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn text_is_equal_for_any_chunk_size(bytes in terminal_bytes(), size in 1usize..9, limit in 2usize..60) {
            prop_assert_eq!(fold(limit, bytes.chunks(size)), fold(limit, [bytes.as_slice()]));
        }

        #[test]
        fn control_characters_are_removed(bytes in terminal_bytes()) {
            let folded = text(&bytes);
            prop_assert!(!folded.contains(|char: char| char.is_ascii_control() && char != '\n' && char != '\t'), "{folded:?}");
        }

        #[test]
        fn plain_text_is_unchanged(plain in "[ -~\t\n\u{e0}-\u{ff}]{0,200}") {
            prop_assert_eq!(text(plain.as_bytes()), plain);
        }
    }
}
