//! The tokens: words, operators and line ends. A line end includes the bodies of pending here-documents.

use std::mem;

use super::{ParseResult, Unsupported};

/// Maximum nesting of compound commands and substitutions.
const MAX_DEPTH: usize = 40;

/// Maximum number of bytes that are scanned twice, per byte of the text. `((` may start arithmetic or a subshell.
const MAX_LOOKAHEAD_PER_BYTE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandToken<'a> {
    Word(&'a [u8]),
    Newline,
    /// `;`
    Semicolon,
    /// `&`
    Background,
    /// `&&` or `||`
    AndOr,
    /// `|` or `|&`
    Pipe,
    /// `;;`, `;&` or `;;&`
    CaseEnd,
    Open,
    Close,
    /// A redirection, which is followed by a word.
    Redirect,
    Heredoc {
        strips_tabs: bool,
    },
    End,
}

/// A here-document whose body follows the line.
pub(super) struct Heredoc {
    delimiter: Vec<u8>,
    is_quoted: bool,
    strips_tabs: bool,
}

pub(super) struct CommandParser<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    /// The token that was peeked, and its start.
    ahead: Option<(CommandToken<'a>, usize)>,
    pub(super) heredocs: Vec<Heredoc>,
    depth: usize,
    pub(super) lookahead_left: usize,
}

impl<'a> CommandParser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            at: 0,
            ahead: None,
            heredocs: Vec::new(),
            depth: 0,
            lookahead_left: (text.len() + 1) * MAX_LOOKAHEAD_PER_BYTE,
        }
    }

    pub(super) fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    pub(super) fn peek(&mut self) -> ParseResult<CommandToken<'a>> {
        if let Some((token, _)) = self.ahead {
            return Ok(token);
        }
        self.skip_blanks();
        let start = self.at;
        let token = self.lex()?;
        self.ahead = Some((token, start));
        Ok(token)
    }

    pub(super) fn next(&mut self) -> ParseResult<CommandToken<'a>> {
        let token = self.peek()?;
        self.ahead = None;
        Ok(token)
    }

    /// Returns the start of the peeked token.
    pub(super) fn token_start(&self) -> usize {
        self.ahead.map_or(self.at, |(_, start)| start)
    }

    /// Continues at another offset.
    pub(super) fn jump(&mut self, to: usize) {
        self.at = to;
        self.ahead = None;
    }

    /// Parses a nested construct.
    pub(super) fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> ParseResult<T>) -> ParseResult<T> {
        if self.depth == MAX_DEPTH {
            return Err(Unsupported);
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn skip_blanks(&mut self) {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(b' ' | b'\t'), _) => self.at += 1,
                (Some(b'\\'), Some(b'\n')) => self.at += 2,
                (Some(b'#'), _) => self.at = self.find_from(self.at, b'\n').unwrap_or(self.text.len()),
                _ => return,
            }
        }
    }

    fn find_from(&self, from: usize, wanted: u8) -> Option<usize> {
        let rest = self.text.get(from..)?;
        rest.iter().position(|byte| *byte == wanted).map(|at| from + at)
    }

    fn lex(&mut self) -> ParseResult<CommandToken<'a>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (length, token) = match rest {
            [] => return Ok(CommandToken::End),
            [b'\n', ..] => {
                self.at += 1;
                self.read_heredocs();
                return Ok(CommandToken::Newline);
            }
            [b';', b';', b'&', ..] => (3, CommandToken::CaseEnd),
            [b';', b';' | b'&', ..] => (2, CommandToken::CaseEnd),
            [b';', ..] => (1, CommandToken::Semicolon),
            [b'&', b'&', ..] | [b'|', b'|', ..] => (2, CommandToken::AndOr),
            [b'&', b'>', b'>', ..] => (3, CommandToken::Redirect),
            [b'&', b'>', ..] => (2, CommandToken::Redirect),
            [b'&', ..] => (1, CommandToken::Background),
            [b'|', b'&', ..] => (2, CommandToken::Pipe),
            [b'|', ..] => (1, CommandToken::Pipe),
            [b'(', ..] => (1, CommandToken::Open),
            [b')', ..] => (1, CommandToken::Close),
            [b'<', b'<', b'<', ..] => (3, CommandToken::Redirect),
            [b'<', b'<', b'-', ..] => (3, CommandToken::Heredoc { strips_tabs: true }),
            [b'<', b'<', ..] => (2, CommandToken::Heredoc { strips_tabs: false }),
            [b'<' | b'>', b'(', ..] => return self.word(),
            [b'<', b'&' | b'>', ..] | [b'>', b'>' | b'&' | b'|', ..] => (2, CommandToken::Redirect),
            [b'<' | b'>', ..] => (1, CommandToken::Redirect),
            _ => return self.word(),
        };
        self.at += length;
        Ok(token)
    }

    /// Registers the here-document with the delimiter after `<<`.
    pub(super) fn expect_body(&mut self, delimiter: &[u8], strips_tabs: bool) -> ParseResult<()> {
        let is_quoted = delimiter.iter().any(|byte| b"'\"\\".contains(byte));
        if delimiter.iter().any(|byte| b"$`\n".contains(byte)) {
            return Err(Unsupported);
        }
        self.heredocs.push(Heredoc { delimiter: unquoted(delimiter), is_quoted, strips_tabs });
        Ok(())
    }

    fn read_heredocs(&mut self) {
        for heredoc in mem::take(&mut self.heredocs) {
            // As in bash, the end of the text also ends a body.
            while self.at < self.text.len() && !self.is_last_line_of(&heredoc) {}
        }
    }

    /// Reads a line of a body. A line that ends with a backslash continues in the next one.
    fn is_last_line_of(&mut self, heredoc: &Heredoc) -> bool {
        let mut whole = Vec::new();
        loop {
            let end = self.find_from(self.at, b'\n').unwrap_or(self.text.len());
            let line = self.text.get(self.at..end).unwrap_or_default();
            self.at = (end + 1).min(self.text.len());
            let backslashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
            if heredoc.is_quoted || backslashes % 2 == 0 || self.at == self.text.len() {
                whole.extend_from_slice(line);
                break;
            }
            whole.extend_from_slice(line.split_last().map_or(&[], |(_, before)| before));
        }
        let tabs = whole.iter().take_while(|byte| heredoc.strips_tabs && **byte == b'\t').count();
        whole.get(tabs..) == Some(heredoc.delimiter.as_slice())
    }
}

fn unquoted(word: &[u8]) -> Vec<u8> {
    let mut quote = None;
    let mut plain = Vec::with_capacity(word.len());
    let mut bytes = word.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, b'\\') => plain.extend(bytes.next()),
            (Some(b'"'), b'\\') => match bytes.next_if(|next| b"\\\"".contains(next)) {
                Some(escaped) => plain.push(escaped),
                None => plain.push(b'\\'),
            },
            (_, byte) => plain.push(byte),
        }
    }
    plain
}
