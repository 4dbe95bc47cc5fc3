//! The grammar of commands, as far as needed to find where each starts and ends.

use super::tokens::{CommandParser, CommandToken};
use super::{ParseResult, Unsupported};

/// Words that end a list of commands at the position of a command.
const TERMINATORS: [&[u8]; 8] = [b"then", b"elif", b"else", b"fi", b"do", b"done", b"esac", b"}"];

/// Words that start a compound command.
const COMPOUNDS: [&[u8]; 8] = [b"if", b"while", b"until", b"for", b"select", b"case", b"{", b"[["];

impl CommandParser<'_> {
    /// Returns the offsets at which commands start.
    pub(super) fn command_starts(mut self) -> ParseResult<Vec<usize>> {
        let mut starts = Vec::new();
        loop {
            self.skip_newlines()?;
            if self.peek()? == CommandToken::End {
                return Ok(starts);
            }
            starts.push(self.token_start());
            self.line()?;
        }
    }

    /// Parses the rest of `$(…)`.
    pub(super) fn substituted_commands(&mut self) -> ParseResult<()> {
        self.list(true)?;
        self.expect(CommandToken::Close)
    }

    fn skip_newlines(&mut self) -> ParseResult<()> {
        while self.peek()? == CommandToken::Newline {
            self.next()?;
        }
        Ok(())
    }

    fn expect(&mut self, token: CommandToken<'_>) -> ParseResult<()> {
        if self.next()? == token { Ok(()) } else { Err(Unsupported) }
    }

    fn expect_word(&mut self) -> ParseResult<()> {
        match self.next()? {
            CommandToken::Word(_) => Ok(()),
            _ => Err(Unsupported),
        }
    }

    /// Parses up to the end of the line with the end of a command.
    fn line(&mut self) -> ParseResult<()> {
        loop {
            self.and_or()?;
            match self.next()? {
                CommandToken::Newline | CommandToken::End => return Ok(()),
                CommandToken::Semicolon | CommandToken::Background => {}
                _ => return Err(Unsupported),
            }
            if matches!(self.peek()?, CommandToken::Newline | CommandToken::End) {
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
                CommandToken::Semicolon | CommandToken::Background | CommandToken::Newline => {
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
            CommandToken::Close | CommandToken::CaseEnd => true,
            CommandToken::Word(word) => TERMINATORS.contains(&word),
            _ => false,
        })
    }

    fn and_or(&mut self) -> ParseResult<()> {
        self.pipeline()?;
        while self.peek()? == CommandToken::AndOr {
            self.next()?;
            self.skip_newlines()?;
            self.pipeline()?;
        }
        Ok(())
    }

    fn pipeline(&mut self) -> ParseResult<()> {
        while let CommandToken::Word(b"!" | b"time") = self.peek()? {
            self.next()?;
        }
        self.command()?;
        while self.peek()? == CommandToken::Pipe {
            self.next()?;
            self.skip_newlines()?;
            self.command()?;
        }
        Ok(())
    }

    fn command(&mut self) -> ParseResult<()> {
        match self.peek()? {
            CommandToken::Word(word) if TERMINATORS.contains(&word) || word == b"coproc" => Err(Unsupported),
            CommandToken::Word(b"function") => {
                self.next()?;
                self.expect_word()?;
                if self.peek()? == CommandToken::Open {
                    self.next()?;
                    self.expect(CommandToken::Close)?;
                }
                self.function_body()
            }
            CommandToken::Word(word) if COMPOUNDS.contains(&word) => self.within(Self::compound),
            CommandToken::Open => self.within(Self::compound),
            CommandToken::Word(_) | CommandToken::Redirect | CommandToken::Heredoc { .. } => self.simple(),
            _ => Err(Unsupported),
        }
    }

    fn simple(&mut self) -> ParseResult<()> {
        let mut words = 0_usize;
        loop {
            match self.peek()? {
                CommandToken::Word(_) => {
                    self.next()?;
                    words += 1;
                }
                CommandToken::Open if words == 1 => {
                    self.next()?;
                    self.expect(CommandToken::Close)?;
                    return self.function_body();
                }
                CommandToken::Open => return Err(Unsupported),
                _ if self.redirection()? => {}
                _ => return Ok(()),
            }
        }
    }

    fn function_body(&mut self) -> ParseResult<()> {
        self.skip_newlines()?;
        match self.peek()? {
            CommandToken::Word(word) if COMPOUNDS.contains(&word) => self.within(Self::compound),
            CommandToken::Open => self.within(Self::compound),
            _ => Err(Unsupported),
        }
    }

    fn redirection(&mut self) -> ParseResult<bool> {
        match self.peek()? {
            CommandToken::Redirect => {
                self.next()?;
                self.expect_word()?;
            }
            CommandToken::Heredoc { strips_tabs } => {
                self.next()?;
                let CommandToken::Word(delimiter) = self.next()? else { return Err(Unsupported) };
                self.expect_body(delimiter, strips_tabs)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn compound(&mut self) -> ParseResult<()> {
        let start = self.token_start();
        match self.next()? {
            CommandToken::Open => self.arithmetic_or_subshell(start)?,
            CommandToken::Word(b"{") => {
                self.list(false)?;
                self.expect(CommandToken::Word(b"}"))?;
            }
            CommandToken::Word(b"if") => self.if_command()?,
            CommandToken::Word(b"while" | b"until") => {
                self.list(false)?;
                self.do_group()?;
            }
            CommandToken::Word(b"for" | b"select") => self.for_command()?,
            CommandToken::Word(b"case") => self.case_command()?,
            CommandToken::Word(b"[[") => self.conditional()?,
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
        self.expect(CommandToken::Close)
    }

    fn if_command(&mut self) -> ParseResult<()> {
        loop {
            self.list(false)?;
            self.expect(CommandToken::Word(b"then"))?;
            self.list(false)?;
            match self.next()? {
                CommandToken::Word(b"elif") => {}
                CommandToken::Word(b"else") => {
                    self.list(false)?;
                    return self.expect(CommandToken::Word(b"fi"));
                }
                CommandToken::Word(b"fi") => return Ok(()),
                _ => return Err(Unsupported),
            }
        }
    }

    fn do_group(&mut self) -> ParseResult<()> {
        self.expect(CommandToken::Word(b"do"))?;
        self.list(false)?;
        self.expect(CommandToken::Word(b"done"))
    }

    fn for_command(&mut self) -> ParseResult<()> {
        if self.peek()? == CommandToken::Open {
            let start = self.token_start();
            if self.text.get(start + 1) != Some(&b'(') {
                return Err(Unsupported);
            }
            let end = self.arithmetic_end(start + 2).ok_or(Unsupported)?;
            self.jump(end);
        } else {
            self.expect_word()?;
        }
        if self.peek()? == CommandToken::Semicolon {
            self.next()?;
        }
        self.skip_newlines()?;
        if self.peek()? == CommandToken::Word(b"in") {
            self.next()?;
            while let CommandToken::Word(_) = self.peek()? {
                self.next()?;
            }
            if !matches!(self.next()?, CommandToken::Semicolon | CommandToken::Newline) {
                return Err(Unsupported);
            }
            self.skip_newlines()?;
        }
        self.do_group()
    }

    fn case_command(&mut self) -> ParseResult<()> {
        self.expect_word()?;
        self.skip_newlines()?;
        self.expect(CommandToken::Word(b"in"))?;
        loop {
            self.skip_newlines()?;
            match self.peek()? {
                CommandToken::Word(b"esac") => {
                    self.next()?;
                    return Ok(());
                }
                CommandToken::Open => {
                    self.next()?;
                }
                _ => {}
            }
            self.expect_word()?;
            while self.peek()? == CommandToken::Pipe {
                self.next()?;
                self.expect_word()?;
            }
            self.expect(CommandToken::Close)?;
            self.list(true)?;
            match self.peek()? {
                CommandToken::CaseEnd => {
                    self.next()?;
                }
                CommandToken::Word(b"esac") => {}
                _ => return Err(Unsupported),
            }
        }
    }

    /// Parses up to `]]`. The operators in between have another meaning than elsewhere.
    fn conditional(&mut self) -> ParseResult<()> {
        loop {
            match self.next()? {
                CommandToken::Word(b"]]") => return Ok(()),
                CommandToken::Word(_)
                | CommandToken::Newline
                | CommandToken::AndOr
                | CommandToken::Pipe
                | CommandToken::Open
                | CommandToken::Close
                | CommandToken::Redirect => {}
                _ => return Err(Unsupported),
            }
        }
    }
}
