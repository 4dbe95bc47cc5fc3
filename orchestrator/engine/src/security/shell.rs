//! Extracts the simple commands of a shell text.
//!
//! Parses pipes, lists, groups, subshells, loops, substitutions, redirections and here-documents.
//! Does not guess: functions, `case`, `[[`, arithmetic and incomplete texts are not parsed, and the
//! risk of such a text is unknown.
//!
//! Hand-written because the text is hostile. brush-parser 0.4 takes exponential time for
//! parentheses that are not closed (24 of them 0.65 s, one more twice as long) and overflows the
//! stack at 5,000 nested braces. yash-syntax is under the GPL. The action server's parser for V0 is
//! another one: it must accept what this one must refuse.

#[cfg(test)]
mod tests;

/// Maximum nesting of subshells, substitutions and `sh -c`.
const MAX_DEPTH: usize = 16;

/// Maximum length of a text, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// The error of a text that cannot be parsed reliably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnparsedShell;

/// A word of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text without quotes. If it is not certain, only up to the first expansion.
    pub(super) text: String,
    /// Whether the text is complete: no variables, substitutions or patterns.
    pub(super) is_certain: bool,
}

/// A simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShellCommand {
    /// The program and its arguments; empty if there are only redirections or assignments.
    pub(super) words: Vec<Word>,
    /// The files of `<`.
    pub(super) reads: Vec<Word>,
    /// The files of `>`, `>>` and similar.
    pub(super) writes: Vec<Word>,
}

/// Returns all simple commands of a text, including those of substitutions.
pub(super) fn commands(text: &str, depth: usize) -> Result<Vec<ShellCommand>, UnparsedShell> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(UnparsedShell);
    }
    let characters = text.chars().collect();
    let mut reader = ShellParser {
        characters,
        position: 0,
        depth,
        heredocs: Vec::new(),
        found: Vec::new(),
    };
    reader.list(None)?;
    Ok(reader.found)
}

struct ShellParser {
    characters: Vec<char>,
    position: usize,
    depth: usize,
    heredocs: Vec<Heredoc>,
    found: Vec<ShellCommand>,
}

struct Heredoc {
    delimiter: String,
    is_quoted: bool,
}

/// The command that is being parsed.
#[derive(Default)]
struct CurrentCommand {
    command: ShellCommand,
    has_assignment: bool,
    /// Whether these are the words of `for`, which are no command.
    is_for: bool,
}

/// A word with its quoting.
struct QuotedWord {
    word: Word,
    is_quoted: bool,
}

impl ShellParser {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.position + ahead).copied()
    }

    fn next(&mut self) -> Result<char, UnparsedShell> {
        let next = self.peek(0).ok_or(UnparsedShell)?;
        self.position += 1;
        Ok(next)
    }

    fn consume(&mut self, expected: char) -> bool {
        let is_next = self.peek(0) == Some(expected);
        self.position += usize::from(is_next);
        is_next
    }

    /// Parses commands up to the closing parenthesis, or to the end.
    fn list(&mut self, closing: Option<char>) -> Result<(), UnparsedShell> {
        let mut current = CurrentCommand::default();
        loop {
            let Some(character) = self.peek(0) else {
                self.end(&mut current);
                let is_end = closing.is_none() && self.heredocs.is_empty();
                return if is_end { Ok(()) } else { Err(UnparsedShell) };
            };
            match character {
                ' ' | '\t' => self.position += 1,
                '\\' if self.peek(1) == Some('\n') => self.position += 2,
                '#' => self.skip_line(),
                '\n' => {
                    self.position += 1;
                    self.end(&mut current);
                    self.skip_heredocs()?;
                }
                ';' => {
                    self.position += 1;
                    self.end(&mut current);
                    if matches!(self.peek(0), Some(';' | '&')) {
                        return Err(UnparsedShell);
                    }
                }
                '&' if self.peek(1) == Some('>') => {
                    self.position += 1;
                    self.redirect(&mut current)?;
                }
                '&' | '|' => {
                    self.position += 1;
                    let _ = self.consume(character) || (character == '|' && self.consume('&'));
                    self.end(&mut current);
                }
                '(' => {
                    self.position += 1;
                    // A function, an array, arithmetic.
                    if !current.command.words.is_empty()
                        || current.has_assignment
                        || self.peek(0) == Some('(')
                    {
                        return Err(UnparsedShell);
                    }
                    self.nested()?;
                }
                ')' if closing == Some(')') => {
                    self.position += 1;
                    self.end(&mut current);
                    return Ok(());
                }
                ')' => return Err(UnparsedShell),
                '<' | '>' => self.redirect(&mut current)?,
                _ => {
                    let written = self.word()?;
                    // Not a file descriptor.
                    if !(written.is_number() && matches!(self.peek(0), Some('<' | '>'))) {
                        current.push(written)?;
                    }
                }
            }
        }
    }

    /// Parses the content of parentheses.
    fn nested(&mut self) -> Result<(), UnparsedShell> {
        if self.depth == MAX_DEPTH {
            return Err(UnparsedShell);
        }
        self.depth += 1;
        // It has its own here-documents.
        let outer = std::mem::take(&mut self.heredocs);
        self.list(Some(')'))?;
        self.heredocs = outer;
        self.depth -= 1;
        Ok(())
    }

    fn end(&mut self, current: &mut CurrentCommand) {
        let CurrentCommand {
            command,
            has_assignment,
            is_for,
        } = std::mem::take(current);
        let is_command = has_assignment || command != ShellCommand::default();
        if is_command && !is_for {
            self.found.push(command);
        }
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|character| character != '\n') {
            self.position += 1;
        }
    }

    fn skip_heredocs(&mut self) -> Result<(), UnparsedShell> {
        for Heredoc {
            delimiter,
            is_quoted,
        } in std::mem::take(&mut self.heredocs)
        {
            loop {
                let start = self.position;
                self.skip_line();
                let line: String = self
                    .characters
                    .get(start..self.position)
                    .unwrap_or_default()
                    .iter()
                    .collect();
                let is_last = self.next().is_err();
                if line.trim_start_matches('\t') == delimiter {
                    break;
                }
                if is_last || (!is_quoted && (line.contains("$(") || line.contains('`'))) {
                    return Err(UnparsedShell);
                }
            }
        }
        Ok(())
    }

    fn redirect(&mut self, current: &mut CurrentCommand) -> Result<(), UnparsedShell> {
        let direction = self.next()?;
        if self.peek(0) == Some('(') {
            self.position += 1;
            self.nested()?;
            current.command.words.push(Word::default());
            return Ok(());
        }
        if direction == '<' && self.consume('<') {
            if self.consume('<') {
                return self.operand().map(drop);
            }
            let _ = self.consume('-');
            let delimiter = self.operand()?;
            if !delimiter.word.is_certain {
                return Err(UnparsedShell);
            }
            self.heredocs.push(Heredoc {
                delimiter: delimiter.word.text,
                is_quoted: delimiter.is_quoted,
            });
            return Ok(());
        }
        let copies = self.consume('&');
        let is_both = direction == '<' && self.consume('>');
        let _ = direction == '>' && (self.consume('>') || self.consume('|'));
        let word = self.operand()?.word;
        let is_descriptor =
            word.is_certain && word.text.chars().all(|c| c.is_ascii_digit() || c == '-');
        if copies && is_descriptor {
            return Ok(());
        }
        if direction == '>' || is_both {
            current.command.writes.push(word.clone());
        }
        if direction == '<' {
            current.command.reads.push(word);
        }
        Ok(())
    }

    /// Parses the word after a redirection.
    fn operand(&mut self) -> Result<QuotedWord, UnparsedShell> {
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.position += 1;
        }
        match self.peek(0) {
            None | Some('\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => Err(UnparsedShell),
            Some(_) => self.word(),
        }
    }

    fn word(&mut self) -> Result<QuotedWord, UnparsedShell> {
        let mut word = Word {
            text: String::new(),
            is_certain: true,
        };
        let mut is_quoted = false;
        while let Some(character) = self.peek(0) {
            match character {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                '\\' => {
                    self.position += 1;
                    is_quoted = true;
                    match self.next()? {
                        '\n' => {}
                        escaped => word.push(escaped),
                    }
                }
                '\'' => {
                    self.position += 1;
                    is_quoted = true;
                    loop {
                        match self.next()? {
                            '\'' => break,
                            character => word.push(character),
                        }
                    }
                }
                '"' => {
                    self.position += 1;
                    is_quoted = true;
                    self.double_quoted(&mut word)?;
                }
                '$' | '`' => self.expansion(&mut word)?,
                // Their expansion is not part of the text.
                '*' | '?' | '[' | '{' => {
                    self.position += 1;
                    // Alone they start a group, or are the program `[`.
                    let is_alone = matches!(self.peek(0), None | Some(' ' | '\t' | '\n'))
                        && word
                            == Word {
                                text: String::new(),
                                is_certain: true,
                            };
                    if is_alone && matches!(character, '{' | '[') {
                        word.push(character);
                    } else {
                        word.is_certain = false;
                    }
                }
                _ => {
                    self.position += 1;
                    word.push(character);
                }
            }
        }
        Ok(QuotedWord { word, is_quoted })
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), UnparsedShell> {
        loop {
            match self.peek(0).ok_or(UnparsedShell)? {
                '"' => {
                    self.position += 1;
                    return Ok(());
                }
                '\\' => {
                    self.position += 1;
                    match self.next()? {
                        '\n' => {}
                        escaped @ ('$' | '`' | '"' | '\\') => word.push(escaped),
                        other => {
                            word.push('\\');
                            word.push(other);
                        }
                    }
                }
                '$' | '`' => self.expansion(word)?,
                character => {
                    self.position += 1;
                    word.push(character);
                }
            }
        }
    }

    /// At `$` or a backtick.
    fn expansion(&mut self, word: &mut Word) -> Result<(), UnparsedShell> {
        if self.next()? == '`' {
            word.is_certain = false;
            return self.backticks();
        }
        match self.peek(0) {
            Some('(') => {
                self.position += 1;
                word.is_certain = false;
                // Arithmetic, or a subshell in a substitution: only the shell itself can decide.
                if self.peek(0) == Some('(') {
                    Err(UnparsedShell)
                } else {
                    self.nested()
                }
            }
            Some('{') => {
                word.is_certain = false;
                loop {
                    match self.next()? {
                        '}' => return Ok(()),
                        '`' | '\'' | '"' | '\\' | '(' => return Err(UnparsedShell),
                        _ => {}
                    }
                }
            }
            // C escapes, which are not supported.
            Some('\'') => Err(UnparsedShell),
            Some(name) if name.is_ascii_alphabetic() || name == '_' => {
                word.is_certain = false;
                while self
                    .peek(0)
                    .is_some_and(|name| name.is_ascii_alphanumeric() || name == '_')
                {
                    self.position += 1;
                }
                Ok(())
            }
            Some(special) if special.is_ascii_digit() || "?@*#$!-".contains(special) => {
                word.is_certain = false;
                self.position += 1;
                Ok(())
            }
            _ => {
                word.push('$');
                Ok(())
            }
        }
    }

    fn backticks(&mut self) -> Result<(), UnparsedShell> {
        let mut inner = String::new();
        loop {
            match self.next()? {
                '`' => break,
                '\\' => match self.next()? {
                    escaped @ ('`' | '\\' | '$') => inner.push(escaped),
                    // Has a different meaning within double quotes.
                    '"' => return Err(UnparsedShell),
                    other => inner.extend(['\\', other]),
                },
                character => inner.push(character),
            }
        }
        if self.depth == MAX_DEPTH {
            return Err(UnparsedShell);
        }
        self.found.extend(commands(&inner, self.depth + 1)?);
        Ok(())
    }
}

impl QuotedWord {
    fn is_number(&self) -> bool {
        let text = &self.word.text;
        let is_plain = self.word.is_certain && !self.is_quoted && !text.is_empty();
        is_plain && text.chars().all(|digit| digit.is_ascii_digit())
    }
}

impl Word {
    /// Creates a literal word.
    #[cfg(test)]
    fn certain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            is_certain: true,
        }
    }

    /// Appends a character, unless it follows an expansion: only the prefix of the word is known
    /// then.
    fn push(&mut self, character: char) {
        if self.is_certain {
            self.text.push(character);
        }
    }
}

impl CurrentCommand {
    fn push(&mut self, QuotedWord { word, is_quoted }: QuotedWord) -> Result<(), UnparsedShell> {
        if self.command.words.is_empty() && !is_quoted {
            match word.text.as_str() {
                "if" | "then" | "else" | "elif" | "fi" | "do" | "done" | "while" | "until"
                | "{" | "}" | "!"
                    if word.is_certain =>
                {
                    return Ok(());
                }
                "for" if word.is_certain => self.is_for = true,
                "case" | "esac" | "select" | "function" | "coproc" => return Err(UnparsedShell),
                _ => {}
            }
        }
        // `for NAME do` has no list: the following words would be parsed as one.
        if self.is_for && word.text == "do" {
            return Err(UnparsedShell);
        }
        let is_assignment = self.command.words.is_empty() && is_assignment(&word.text);
        if is_assignment {
            self.has_assignment = true;
        } else {
            self.command.words.push(word);
        }
        Ok(())
    }
}

fn is_assignment(text: &str) -> bool {
    let Some((name, _)) = text.split_once('=') else {
        return false;
    };
    let name = name.strip_suffix('+').unwrap_or(name);
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .chars()
            .all(|rest| rest.is_ascii_alphanumeric() || rest == '_')
}
