//! Words: everything that quotes, substitutes or expands within one, skipped to its end.

use std::mem;

use super::tokens::{Reader, Token};
use super::{Parsed, Unsure};

impl<'a> Reader<'a> {
    pub(super) fn word(&mut self) -> Parsed<Token<'a>> {
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
            Some(word) if !word.is_empty() => Ok(Token::Word(word)),
            _ => Err(Unsure),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
    }

    /// `NAME=(` and `NAME+=(`.
    fn is_array(&self, start: usize) -> bool {
        let word = self.text.get(start..self.at).unwrap_or_default();
        let Some(name) = word.strip_suffix(b"=") else { return false };
        let name = name.strip_suffix(b"+").unwrap_or(name);
        name.first().is_some_and(|byte| !byte.is_ascii_digit())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }

    fn array(&mut self) -> Parsed<()> {
        self.skip(1);
        if !self.heredocs.is_empty() {
            return Err(Unsure);
        }
        self.within(|reader| {
            loop {
                match reader.next()? {
                    Token::Word(_) | Token::Newline => {}
                    Token::Close => return Ok(()),
                    _ => return Err(Unsure),
                }
            }
        })
    }

    fn single_quotes(&mut self) -> Parsed<()> {
        self.skip(1);
        self.skip_to(b'\'', false)
    }

    fn backticks(&mut self) -> Parsed<()> {
        self.skip(1);
        self.skip_to(b'`', true)
    }

    fn skip_to(&mut self, end: u8, has_escapes: bool) -> Parsed<()> {
        loop {
            match self.byte(0) {
                None => return Err(Unsure),
                Some(byte) if byte == end => {
                    self.skip(1);
                    return Ok(());
                }
                Some(b'\\') if has_escapes => self.skip(2),
                Some(_) => self.skip(1),
            }
        }
    }

    fn double_quotes(&mut self) -> Parsed<()> {
        self.skip(1);
        self.within(|reader| {
            loop {
                match reader.byte(0) {
                    None => return Err(Unsure),
                    Some(b'"') => {
                        reader.skip(1);
                        return Ok(());
                    }
                    Some(b'\\') => reader.skip(2),
                    Some(b'`') => reader.backticks()?,
                    Some(b'$') => reader.dollar(true)?,
                    Some(_) => reader.skip(1),
                }
            }
        })
    }

    fn dollar(&mut self, in_double_quotes: bool) -> Parsed<()> {
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
            // Arithmetic as it was written long ago.
            (Some(b'['), _) => Err(Unsure),
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

    /// `$(…)`, `<(…)` or `>(…)`, from its first byte.
    fn substitution(&mut self, opening: usize) -> Parsed<()> {
        let start = self.at;
        self.skip(opening);
        let waiting = mem::take(&mut self.heredocs);
        self.within(|reader| reader.substituted_commands())?;
        let read = self.text.get(start..self.at).unwrap_or_default();
        let goes_on = !waiting.is_empty() && read.contains(&b'\n');
        // Whose body comes first is not the same in all shells.
        if goes_on || !self.heredocs.is_empty() {
            return Err(Unsure);
        }
        self.heredocs = waiting;
        Ok(())
    }

    fn braces(&mut self, in_double_quotes: bool) -> Parsed<()> {
        self.skip(2);
        if let Some(b' ' | b'\t' | b'\n' | b'|') = self.byte(0) {
            // Commands, in the newest bash.
            return Err(Unsure);
        }
        self.within(|reader| {
            loop {
                match reader.byte(0) {
                    Some(b'}') => {
                        reader.skip(1);
                        return Ok(());
                    }
                    // Depends on the operator.
                    Some(b'\'') if in_double_quotes => return Err(Unsure),
                    None => return Err(Unsure),
                    Some(b'\'') => reader.single_quotes()?,
                    Some(b'"') => reader.double_quotes()?,
                    Some(b'`') => reader.backticks()?,
                    Some(b'$') => reader.dollar(in_double_quotes)?,
                    Some(b'\\') => reader.skip(2),
                    Some(_) => reader.skip(1),
                }
            }
        })
    }

    /// Where arithmetic ends whose first byte after `((` is at `from`: after `))`. Nothing if it is none, or unending.
    pub(super) fn arithmetic_end(&mut self, from: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut at = from;
        loop {
            self.looks = self.looks.checked_sub(1)?;
            match (*self.text.get(at)?, depth) {
                (b'(', _) => depth += 1,
                (b')', 0) => return (self.text.get(at + 1) == Some(&b')')).then_some(at + 2),
                (b')', _) => depth -= 1,
                (b'\\', _) => at += 1,
                // Quotes in arithmetic are rare and read in several ways.
                (b'\'' | b'"' | b'`', _) => return None,
                _ => {}
            }
            at += 1;
        }
    }
}
