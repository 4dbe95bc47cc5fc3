//! The grammar of commands, as far as needed to find where each starts and ends.

use super::tokens::{ShellParser, Token};
use super::{ParseResult, Unsupported};

/// Words that end a list of commands at the position of a command.
const TERMINATORS: [&[u8]; 8] = [b"then", b"elif", b"else", b"fi", b"do", b"done", b"esac", b"}"];

/// Words that start a compound command.
const COMPOUNDS: [&[u8]; 8] = [b"if", b"while", b"until", b"for", b"select", b"case", b"{", b"[["];

impl ShellParser<'_> {
    /// Returns the offsets at which commands start.
    pub(super) fn command_starts(mut self) -> ParseResult<Vec<usize>> {
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

    /// Parses the rest of `$(…)`.
    pub(super) fn substituted_commands(&mut self) -> ParseResult<()> {
        self.list(true)?;
        self.expect(Token::Close)
    }

    fn skip_newlines(&mut self) -> ParseResult<()> {
        while self.peek()? == Token::Newline {
            self.next()?;
        }
        Ok(())
    }

    fn expect(&mut self, token: Token<'_>) -> ParseResult<()> {
        if self.next()? == token { Ok(()) } else { Err(Unsupported) }
    }

    fn expect_word(&mut self) -> ParseResult<()> {
        match self.next()? {
            Token::Word(_) => Ok(()),
            _ => Err(Unsupported),
        }
    }

    /// Parses up to the end of the line with the end of a command.
    fn line(&mut self) -> ParseResult<()> {
        loop {
            self.and_or()?;
            match self.next()? {
                Token::Newline | Token::End => return Ok(()),
                Token::Semicolon | Token::Background => {}
                _ => return Err(Unsupported),
            }
            if matches!(self.peek()?, Token::Newline | Token::End) {
                self.next()?;
                return Ok(());
            }
        }
    }

    /// Parses commands up to a terminator, which is not consumed.
    fn list(&mut self, may_be_empty: bool) -> ParseResult<()> {
        self.skip_newlines()?;
        if self.is_at_terminator()? {
            return if may_be_empty { Ok(()) } else { Err(Unsupported) };
        }
        loop {
            self.and_or()?;
            match self.peek()? {
                Token::Semicolon | Token::Background | Token::Newline => {
                    self.next()?;
                    self.skip_newlines()?;
                }
                _ if self.is_at_terminator()? => return Ok(()),
                _ => return Err(Unsupported),
            }
            if self.is_at_terminator()? {
                return Ok(());
            }
        }
    }

    fn is_at_terminator(&mut self) -> ParseResult<bool> {
        Ok(match self.peek()? {
            Token::Close | Token::CaseEnd => true,
            Token::Word(word) => TERMINATORS.contains(&word),
            _ => false,
        })
    }

    fn and_or(&mut self) -> ParseResult<()> {
        self.pipeline()?;
        while self.peek()? == Token::AndOr {
            self.next()?;
            self.skip_newlines()?;
            self.pipeline()?;
        }
        Ok(())
    }

    fn pipeline(&mut self) -> ParseResult<()> {
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

    fn command(&mut self) -> ParseResult<()> {
        match self.peek()? {
            Token::Word(word) if TERMINATORS.contains(&word) || word == b"coproc" => Err(Unsupported),
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
            _ => Err(Unsupported),
        }
    }

    fn simple(&mut self) -> ParseResult<()> {
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
                Token::Open => return Err(Unsupported),
                _ if self.redirection()? => {}
                _ => return Ok(()),
            }
        }
    }

    fn function_body(&mut self) -> ParseResult<()> {
        self.skip_newlines()?;
        match self.peek()? {
            Token::Word(word) if COMPOUNDS.contains(&word) => self.within(Self::compound),
            Token::Open => self.within(Self::compound),
            _ => Err(Unsupported),
        }
    }

    fn redirection(&mut self) -> ParseResult<bool> {
        match self.peek()? {
            Token::Redirect => {
                self.next()?;
                self.expect_word()?;
            }
            Token::Heredoc { strips_tabs } => {
                self.next()?;
                let Token::Word(delimiter) = self.next()? else { return Err(Unsupported) };
                self.expect_body(delimiter, strips_tabs)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn compound(&mut self) -> ParseResult<()> {
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
            _ => return Err(Unsupported),
        }
        while self.redirection()? {}
        Ok(())
    }

    fn arithmetic_or_subshell(&mut self, start: usize) -> ParseResult<()> {
        if self.text.get(start + 1) == Some(&b'(')
            && let Some(end) = self.arithmetic_end(start + 2)
        {
            self.jump(end);
            return Ok(());
        }
        self.list(false)?;
        self.expect(Token::Close)
    }

    fn if_command(&mut self) -> ParseResult<()> {
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
                _ => return Err(Unsupported),
            }
        }
    }

    fn do_group(&mut self) -> ParseResult<()> {
        self.expect(Token::Word(b"do"))?;
        self.list(false)?;
        self.expect(Token::Word(b"done"))
    }

    fn for_command(&mut self) -> ParseResult<()> {
        if self.peek()? == Token::Open {
            let start = self.token_start();
            if self.text.get(start + 1) != Some(&b'(') {
                return Err(Unsupported);
            }
            let end = self.arithmetic_end(start + 2).ok_or(Unsupported)?;
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
                return Err(Unsupported);
            }
            self.skip_newlines()?;
        }
        self.do_group()
    }

    fn case_command(&mut self) -> ParseResult<()> {
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
                _ => return Err(Unsupported),
            }
        }
    }

    /// Parses up to `]]`. The operators in between have another meaning than elsewhere.
    fn conditional(&mut self) -> ParseResult<()> {
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
                _ => return Err(Unsupported),
            }
        }
    }
}
