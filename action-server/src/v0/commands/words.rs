//! Words, including quotes, substitutions and expansions in them.

use std::mem;

use super::tokens::{CommandParser, CommandToken};
use super::{ParseResult, Unsupported};

impl<'a> CommandParser<'a> {
    pub(super) fn word(&mut self) -> ParseResult<CommandToken<'a>> {
        let start = self.at;
        while let Some(byte) = self.byte(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')' => break,
                b'<' | b'>' if self.byte(1) == Some(b'(') => self.substitution(2)?,
                b'<' | b'>' => break,
                b'(' if self.is_array(start) => self.array()?,
                b'(' => break,
                b'\\' => self.skip(2),
                b'\'' => self.single_quotes()?,
                b'"' => self.double_quotes()?,
                b'`' => self.backticks()?,
                b'$' => self.dollar(false)?,
                _ => self.skip(1),
            }
        }
        match self.text.get(start..self.at) {
            Some(word) if !word.is_empty() => Ok(CommandToken::Word(word)),
            _ => Err(Unsupported),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
    }

    /// Returns whether the word is `NAME=` or `NAME+=`.
    fn is_array(&self, start: usize) -> bool {
        let word = self.text.get(start..self.at).unwrap_or_default();
        let Some(name) = word.strip_suffix(b"=") else { return false };
        let name = name.strip_suffix(b"+").unwrap_or(name);
        name.first().is_some_and(|byte| !byte.is_ascii_digit())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }

    fn array(&mut self) -> ParseResult<()> {
        self.skip(1);
        if !self.heredocs.is_empty() {
            return Err(Unsupported);
        }
        self.within(|parser| {
            loop {
                match parser.next()? {
                    CommandToken::Word(_) | CommandToken::Newline => {}
                    CommandToken::Close => return Ok(()),
                    _ => return Err(Unsupported),
                }
            }
        })
    }

    fn single_quotes(&mut self) -> ParseResult<()> {
        self.skip(1);
        self.skip_to(b'\'', false)
    }

    fn backticks(&mut self) -> ParseResult<()> {
        self.skip(1);
        self.skip_to(b'`', true)
    }

    fn skip_to(&mut self, end: u8, has_escapes: bool) -> ParseResult<()> {
        loop {
            match self.byte(0) {
                None => return Err(Unsupported),
                Some(byte) if byte == end => {
                    self.skip(1);
                    return Ok(());
                }
                Some(b'\\') if has_escapes => self.skip(2),
                Some(_) => self.skip(1),
            }
        }
    }

    fn double_quotes(&mut self) -> ParseResult<()> {
        self.skip(1);
        self.within(|parser| {
            loop {
                match parser.byte(0) {
                    None => return Err(Unsupported),
                    Some(b'"') => {
                        parser.skip(1);
                        return Ok(());
                    }
                    Some(b'\\') => parser.skip(2),
                    Some(b'`') => parser.backticks()?,
                    Some(b'$') => parser.dollar(true)?,
                    Some(_) => parser.skip(1),
                }
            }
        })
    }

    fn dollar(&mut self, in_double_quotes: bool) -> ParseResult<()> {
        match (self.byte(1), self.byte(2)) {
            (Some(b'('), Some(b'(')) => match self.arithmetic_end(self.at + 3) {
                Some(end) => {
                    self.at = end;
                    Ok(())
                }
                None => self.substitution(2),
            },
            (Some(b'('), _) => self.substitution(2),
            (Some(b'{'), _) => self.braces(in_double_quotes),
            // `$[…]`, the obsolete form of arithmetic.
            (Some(b'['), _) => Err(Unsupported),
            (Some(b'\''), _) if !in_double_quotes => {
                self.skip(2);
                self.skip_to(b'\'', true)
            }
            _ => {
                self.skip(1);
                Ok(())
            }
        }
    }

    /// Skips `$(…)`, `<(…)` or `>(…)`.
    fn substitution(&mut self, opening: usize) -> ParseResult<()> {
        let start = self.at;
        self.skip(opening);
        let waiting = mem::take(&mut self.heredocs);
        self.within(|parser| parser.substituted_commands())?;
        let read = self.text.get(start..self.at).unwrap_or_default();
        let continues = !waiting.is_empty() && read.contains(&b'\n');
        // Shells differ in whose here-document body comes first.
        if continues || !self.heredocs.is_empty() {
            return Err(Unsupported);
        }
        self.heredocs = waiting;
        Ok(())
    }

    fn braces(&mut self, in_double_quotes: bool) -> ParseResult<()> {
        self.skip(2);
        if let Some(b' ' | b'\t' | b'\n' | b'|') = self.byte(0) {
            // Commands in recent versions of bash.
            return Err(Unsupported);
        }
        self.within(|parser| {
            loop {
                match parser.byte(0) {
                    Some(b'}') => {
                        parser.skip(1);
                        return Ok(());
                    }
                    // The meaning depends on the operator.
                    Some(b'\'') if in_double_quotes => return Err(Unsupported),
                    None => return Err(Unsupported),
                    Some(b'\'') => parser.single_quotes()?,
                    Some(b'"') => parser.double_quotes()?,
                    Some(b'`') => parser.backticks()?,
                    Some(b'$') => parser.dollar(in_double_quotes)?,
                    Some(b'\\') => parser.skip(2),
                    Some(_) => parser.skip(1),
                }
            }
        })
    }

    /// Returns the offset after the `))` of arithmetic whose first byte after `((` is at `from`. `None` if it is not arithmetic, or
    /// has no end.
    pub(super) fn arithmetic_end(&mut self, from: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut at = from;
        loop {
            self.lookahead_left = self.lookahead_left.checked_sub(1)?;
            match (*self.text.get(at)?, depth) {
                (b'(', _) => depth += 1,
                (b')', 0) => return (self.text.get(at + 1) == Some(&b')')).then_some(at + 2),
                (b')', _) => depth -= 1,
                (b'\\', _) => at += 1,
                // Quotes in arithmetic are rare and ambiguous.
                (b'\'' | b'"' | b'`', _) => return None,
                _ => {}
            }
            at += 1;
        }
    }
}
