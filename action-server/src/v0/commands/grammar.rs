//! Commands: where each begins and ends.

use super::tokens::{Reader, Token};
use super::{Parsed, Unsure};

/// Words that end a list of commands where a command could begin.
const TERMINATORS: [&[u8]; 8] = [b"then", b"elif", b"else", b"fi", b"do", b"done", b"esac", b"}"];

/// Words that begin a compound command.
const COMPOUNDS: [&[u8]; 8] = [b"if", b"while", b"until", b"for", b"select", b"case", b"{", b"[["];

impl Reader<'_> {
    /// Where the commands of the text begin.
    pub(super) fn command_starts(mut self) -> Parsed<Vec<usize>> {
        let mut starts = Vec::new();
        loop {
            self.skip_newlines()?;
            if self.peek()? == Token::End {
                return Ok(starts);
            }
            starts.push(self.token_start());
            self.line()?;
        }
    }

    /// The rest of `$(…)`.
    pub(super) fn substituted_commands(&mut self) -> Parsed<()> {
        self.list(true)?;
        self.expect(Token::Close)
    }

    fn skip_newlines(&mut self) -> Parsed<()> {
        while self.peek()? == Token::Newline {
            self.next()?;
        }
        Ok(())
    }

    fn expect(&mut self, token: Token<'_>) -> Parsed<()> {
        if self.next()? == token { Ok(()) } else { Err(Unsure) }
    }

    fn expect_word(&mut self) -> Parsed<()> {
        match self.next()? {
            Token::Word(_) => Ok(()),
            _ => Err(Unsure),
        }
    }

    /// To the end of the line that ends a command.
    fn line(&mut self) -> Parsed<()> {
        loop {
            self.and_or()?;
            match self.next()? {
                Token::Newline | Token::End => return Ok(()),
                Token::Semicolon | Token::Background => {}
                _ => return Err(Unsure),
            }
            if matches!(self.peek()?, Token::Newline | Token::End) {
                self.next()?;
                return Ok(());
            }
        }
    }

    /// Commands up to what ends them, which is left.
    fn list(&mut self, may_be_empty: bool) -> Parsed<()> {
        self.skip_newlines()?;
        if self.is_at_terminator()? {
            return if may_be_empty { Ok(()) } else { Err(Unsure) };
        }
        loop {
            self.and_or()?;
            match self.peek()? {
                Token::Semicolon | Token::Background | Token::Newline => {
                    self.next()?;
                    self.skip_newlines()?;
                }
                _ if self.is_at_terminator()? => return Ok(()),
                _ => return Err(Unsure),
            }
            if self.is_at_terminator()? {
                return Ok(());
            }
        }
    }

    fn is_at_terminator(&mut self) -> Parsed<bool> {
        Ok(match self.peek()? {
            Token::Close | Token::CaseEnd => true,
            Token::Word(word) => TERMINATORS.contains(&word),
            _ => false,
        })
    }

    fn and_or(&mut self) -> Parsed<()> {
        self.pipeline()?;
        while self.peek()? == Token::AndOr {
            self.next()?;
            self.skip_newlines()?;
            self.pipeline()?;
        }
        Ok(())
    }

    fn pipeline(&mut self) -> Parsed<()> {
        while let Token::Word(b"!" | b"time") = self.peek()? {
            self.next()?;
        }
        self.command()?;
        while self.peek()? == Token::Pipe {
            self.next()?;
            self.skip_newlines()?;
            self.command()?;
        }
        Ok(())
    }

    fn command(&mut self) -> Parsed<()> {
        match self.peek()? {
            Token::Word(word) if TERMINATORS.contains(&word) || word == b"coproc" => Err(Unsure),
            Token::Word(b"function") => {
                self.next()?;
                self.expect_word()?;
                if self.peek()? == Token::Open {
                    self.next()?;
                    self.expect(Token::Close)?;
                }
                self.function_body()
            }
            Token::Word(word) if COMPOUNDS.contains(&word) => self.within(Self::compound),
            Token::Open => self.within(Self::compound),
            Token::Word(_) | Token::Redirect | Token::Heredoc { .. } => self.simple(),
            _ => Err(Unsure),
        }
    }

    fn simple(&mut self) -> Parsed<()> {
        let mut words = 0_usize;
        loop {
            match self.peek()? {
                Token::Word(_) => {
                    self.next()?;
                    words += 1;
                }
                Token::Open if words == 1 => {
                    self.next()?;
                    self.expect(Token::Close)?;
                    return self.function_body();
                }
                Token::Open => return Err(Unsure),
                _ if self.redirection()? => {}
                _ => return Ok(()),
            }
        }
    }

    fn function_body(&mut self) -> Parsed<()> {
        self.skip_newlines()?;
        match self.peek()? {
            Token::Word(word) if COMPOUNDS.contains(&word) => self.within(Self::compound),
            Token::Open => self.within(Self::compound),
            _ => Err(Unsure),
        }
    }

    fn redirection(&mut self) -> Parsed<bool> {
        match self.peek()? {
            Token::Redirect => {
                self.next()?;
                self.expect_word()?;
            }
            Token::Heredoc { strips_tabs } => {
                self.next()?;
                let Token::Word(delimiter) = self.next()? else { return Err(Unsure) };
                self.expect_body(delimiter, strips_tabs)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn compound(&mut self) -> Parsed<()> {
        let start = self.token_start();
        match self.next()? {
            Token::Open => self.arithmetic_or_subshell(start)?,
            Token::Word(b"{") => {
                self.list(false)?;
                self.expect(Token::Word(b"}"))?;
            }
            Token::Word(b"if") => self.if_command()?,
            Token::Word(b"while" | b"until") => {
                self.list(false)?;
                self.do_group()?;
            }
            Token::Word(b"for" | b"select") => self.for_command()?,
            Token::Word(b"case") => self.case_command()?,
            Token::Word(b"[[") => self.conditional()?,
            _ => return Err(Unsure),
        }
        while self.redirection()? {}
        Ok(())
    }

    fn arithmetic_or_subshell(&mut self, start: usize) -> Parsed<()> {
        if self.text.get(start + 1) == Some(&b'(')
            && let Some(end) = self.arithmetic_end(start + 2)
        {
            self.jump(end);
            return Ok(());
        }
        self.list(false)?;
        self.expect(Token::Close)
    }

    fn if_command(&mut self) -> Parsed<()> {
        loop {
            self.list(false)?;
            self.expect(Token::Word(b"then"))?;
            self.list(false)?;
            match self.next()? {
                Token::Word(b"elif") => {}
                Token::Word(b"else") => {
                    self.list(false)?;
                    return self.expect(Token::Word(b"fi"));
                }
                Token::Word(b"fi") => return Ok(()),
                _ => return Err(Unsure),
            }
        }
    }

    fn do_group(&mut self) -> Parsed<()> {
        self.expect(Token::Word(b"do"))?;
        self.list(false)?;
        self.expect(Token::Word(b"done"))
    }

    fn for_command(&mut self) -> Parsed<()> {
        if self.peek()? == Token::Open {
            let start = self.token_start();
            if self.text.get(start + 1) != Some(&b'(') {
                return Err(Unsure);
            }
            let end = self.arithmetic_end(start + 2).ok_or(Unsure)?;
            self.jump(end);
        } else {
            self.expect_word()?;
        }
        if self.peek()? == Token::Semicolon {
            self.next()?;
        }
        self.skip_newlines()?;
        if self.peek()? == Token::Word(b"in") {
            self.next()?;
            while let Token::Word(_) = self.peek()? {
                self.next()?;
            }
            if !matches!(self.next()?, Token::Semicolon | Token::Newline) {
                return Err(Unsure);
            }
            self.skip_newlines()?;
        }
        self.do_group()
    }

    fn case_command(&mut self) -> Parsed<()> {
        self.expect_word()?;
        self.skip_newlines()?;
        self.expect(Token::Word(b"in"))?;
        loop {
            self.skip_newlines()?;
            match self.peek()? {
                Token::Word(b"esac") => {
                    self.next()?;
                    return Ok(());
                }
                Token::Open => {
                    self.next()?;
                }
                _ => {}
            }
            self.expect_word()?;
            while self.peek()? == Token::Pipe {
                self.next()?;
                self.expect_word()?;
            }
            self.expect(Token::Close)?;
            self.list(true)?;
            match self.peek()? {
                Token::CaseEnd => {
                    self.next()?;
                }
                Token::Word(b"esac") => {}
                _ => return Err(Unsure),
            }
        }
    }

    /// To `]]`: what is between holds operators that mean something else there.
    fn conditional(&mut self) -> Parsed<()> {
        loop {
            match self.next()? {
                Token::Word(b"]]") => return Ok(()),
                Token::Word(_)
                | Token::Newline
                | Token::AndOr
                | Token::Pipe
                | Token::Open
                | Token::Close
                | Token::Redirect => {}
                _ => return Err(Unsure),
            }
        }
    }
}
