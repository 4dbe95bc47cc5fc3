//! Extracts the simple commands of a shell text.
//!
//! Parses pipes, lists, groups, subshells, loops, substitutions, redirections and here-documents.
//! Does not guess: functions, `case`, `[[`, arithmetic and incomplete texts are not parsed, and the
//! risk of such a text is unknown. The same holds for constructs that shells read differently, such
//! as a here-document whose command substitution spans lines.
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

/// The characters that separate words. Other spaces of Unicode are part of a word.
pub(super) const BLANKS: [char; 3] = [' ', '\t', '\n'];

/// The error of a text that cannot be parsed reliably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnparsedShell;

/// A word of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// The text without quotes, up to the first expansion.
    pub(super) text: String,
    pub(super) expansion: Expansion,
    /// Whether it stays one word: it has no expansion outside of quotes that may be empty or be
    /// split.
    pub(super) is_single: bool,
}

/// How the shell's expansion of a word can differ from its text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Expansion {
    /// The text is complete.
    None,
    /// Patterns and braces complete the text, without `..` in a path.
    Pattern,
    /// Any text follows. Without quotes, it may be split into several words.
    #[default]
    Any,
}

/// A simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ShellCommand {
    /// The program and its arguments; empty if there are only redirections or assignments.
    pub(super) words: Vec<Word>,
    /// The names of the variables that are assigned before the program.
    pub(super) assignments: Vec<String>,
    /// The files of `<`.
    pub(super) reads: Vec<Word>,
    /// The files of `>`, `>>` and similar.
    pub(super) writes: Vec<Word>,
}

/// Returns all simple commands of a text, including those of substitutions.
pub(super) fn commands(text: &str, depth: usize) -> Result<Vec<ShellCommand>, UnparsedShell> {
    // Terminals, editors and shells treat other control characters, carriage returns among them,
    // in different ways.
    let is_unclear = |c: char| c.is_control() && !matches!(c, '\t' | '\n');
    if text.len() > MAX_TEXT_BYTES || text.contains(is_unclear) {
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
    /// Whether it is `<<-`: tabs at the start of its lines do not count.
    strips_tabs: bool,
}

/// The command that is being parsed.
#[derive(Default)]
struct CurrentCommand {
    command: ShellCommand,
    /// Whether these are the words of `for`, which do not run.
    is_for: bool,
}

/// A word with its quoting.
struct QuotedWord {
    word: Word,
    is_quoted: bool,
    /// The name of the variable, if it has the form of an assignment. Quotes before `=` make it an
    /// ordinary word.
    assigned: Option<String>,
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

    /// Whether a backslash and a newline follow, which shells remove before they read tokens.
    fn at_continuation(&self) -> bool {
        self.peek(0) == Some('\\') && self.peek(1) == Some('\n')
    }

    /// Whether the preceding character separates words.
    fn is_after_blank(&self) -> bool {
        let before = self.position.checked_sub(1);
        let before = before.and_then(|index| self.characters.get(index));
        matches!(before, Some(' ' | '\t'))
    }

    /// Skips blanks, and the continued lines after them. Any other continuation may be within a
    /// token and is not parsed.
    fn skip_blanks(&mut self) {
        while matches!(self.peek(0), Some(' ' | '\t')) {
            self.position += 1;
            while self.at_continuation() {
                self.position += 2;
            }
        }
    }

    /// Returns an error if a newline since `start` is within a token, and a here-document would
    /// start after it: shells disagree on whether it does.
    fn check_newlines(&self, start: usize) -> Result<(), UnparsedShell> {
        let token = self.characters.get(start..self.position);
        let has_newline = token.is_some_and(|token| token.contains(&'\n'));
        if has_newline && !self.heredocs.is_empty() {
            return Err(UnparsedShell);
        }
        Ok(())
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
                ' ' | '\t' => self.skip_blanks(),
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
                        || !current.command.assignments.is_empty()
                        || self.peek(0) == Some('(')
                    {
                        return Err(UnparsedShell);
                    }
                    self.nested()?;
                }
                ')' if closing == Some(')') => {
                    self.position += 1;
                    self.end(&mut current);
                    // Their text would follow the parenthesis.
                    let is_complete = self.heredocs.is_empty();
                    return is_complete.then_some(()).ok_or(UnparsedShell);
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
        let start = self.position;
        self.list(Some(')'))?;
        self.heredocs = outer;
        self.check_newlines(start)?;
        self.depth -= 1;
        Ok(())
    }

    fn end(&mut self, current: &mut CurrentCommand) {
        let CurrentCommand { command, is_for } = std::mem::take(current);
        if command != ShellCommand::default() && !is_for {
            self.found.push(command);
        }
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|character| character != '\n') {
            self.position += 1;
        }
    }

    fn skip_heredocs(&mut self) -> Result<(), UnparsedShell> {
        for heredoc in std::mem::take(&mut self.heredocs) {
            loop {
                let (line, is_joined) = self.heredoc_line(&heredoc);
                let is_last = self.next().is_err();
                let text = match heredoc.strips_tabs {
                    true => line.trim_start_matches('\t'),
                    false => &line,
                };
                if text == heredoc.delimiter {
                    if is_joined {
                        return Err(UnparsedShell);
                    }
                    break;
                }
                if is_last || (!heredoc.is_quoted && has_complex_expansion(&line)) {
                    return Err(UnparsedShell);
                }
            }
        }
        Ok(())
    }

    /// Returns a line of a here-document, and whether it consists of several: without quotes, a
    /// backslash continues a line.
    fn heredoc_line(&mut self, heredoc: &Heredoc) -> (String, bool) {
        let mut line = String::new();
        let mut is_joined = false;
        while let Some(character) = self.peek(0).filter(|character| *character != '\n') {
            if heredoc.is_quoted || character != '\\' {
                self.position += 1;
                line.push(character);
            } else if self.at_continuation() {
                self.position += 2;
                is_joined = true;
            } else {
                self.position += 1;
                line.push(character);
                // The escaped character continues no line, even if it is a backslash.
                if let Some(escaped) = self.peek(0) {
                    self.position += 1;
                    line.push(escaped);
                }
            }
        }
        (line, is_joined)
    }

    fn redirect(&mut self, current: &mut CurrentCommand) -> Result<(), UnparsedShell> {
        let is_own_word = self.is_after_blank() || self.position == 0;
        let direction = self.next()?;
        if self.peek(0) == Some('(') {
            self.position += 1;
            self.nested()?;
            // A `#` after it is part of the word.
            let is_whole = matches!(
                self.peek(0),
                None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | ')')
            );
            if !is_own_word || !is_whole {
                return Err(UnparsedShell);
            }
            current.command.words.push(Word::default());
            return Ok(());
        }
        if direction == '<' && self.consume('<') {
            if self.consume('<') {
                return self.operand().map(drop);
            }
            let strips_tabs = self.consume('-');
            let delimiter = self.operand()?;
            // In delimiters, `$` and backslashes have other meanings than in words.
            if !delimiter.word.is_certain() || delimiter.word.text.contains(['$', '\\', '\n']) {
                return Err(UnparsedShell);
            }
            self.heredocs.push(Heredoc {
                delimiter: delimiter.word.text,
                is_quoted: delimiter.is_quoted,
                strips_tabs,
            });
            return Ok(());
        }
        let copies = self.consume('&');
        let is_both = direction == '<' && self.consume('>');
        let _ = direction == '>' && (self.consume('>') || self.consume('|'));
        let word = self.operand()?.word;
        let is_descriptor =
            word.is_certain() && word.text.chars().all(|c| c.is_ascii_digit() || c == '-');
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
        self.skip_blanks();
        match self.peek(0) {
            // A comment cannot be an operand.
            None | Some('#' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => Err(UnparsedShell),
            Some(_) => self.word(),
        }
    }

    fn word(&mut self) -> Result<QuotedWord, UnparsedShell> {
        let mut word = Word::certain("");
        let mut is_quoted = false;
        let start = self.position;
        while let Some(character) = self.peek(0) {
            match character {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => break,
                // The text after the newline may complete a substitution or a reserved word.
                '\\' if self.at_continuation() => return Err(UnparsedShell),
                '\\' => {
                    self.position += 1;
                    is_quoted = true;
                    word.push(self.next()?);
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
                // Quotes of a text that is translated.
                '$' if self.peek(1) == Some('"') => self.position += 1,
                // C escapes, which are not supported.
                '$' if self.peek(1) == Some('\'') => return Err(UnparsedShell),
                '$' | '`' => {
                    let is_number =
                        character == '$' && matches!(self.peek(1), Some('?' | '#' | '$'));
                    self.expansion(&mut word)?;
                    word.is_single &= word.is_certain() || is_number;
                }
                // Another home, or a folder of the stack.
                '~' if self.at_tilde_prefix(start, &word)
                    && !matches!(
                        self.peek(1),
                        None | Some('/' | ' ' | '\t' | '\n' | ';' | ')')
                    ) =>
                {
                    self.position += 1;
                    word.expansion = Expansion::Any;
                    word.is_single = false;
                }
                // The placeholder of `find` and `xargs`.
                '{' if self.peek(1) == Some('}')
                    && matches!(
                        self.peek(2),
                        None | Some(' ' | '\t' | '\n' | ';' | '|' | ')')
                    ) =>
                {
                    self.position += 2;
                    word.push('{');
                    word.push('}');
                }
                // Their expansion is not part of the text.
                '*' | '?' | '[' | '{' => {
                    self.position += 1;
                    // Alone they start a group, or are the program `[`.
                    let is_alone = matches!(self.peek(0), None | Some(' ' | '\t' | '\n'))
                        && word == Word::certain("");
                    if is_alone && matches!(character, '{' | '[') {
                        word.push(character);
                    } else {
                        word.expansion = word.expansion.max(Expansion::Pattern);
                        word.is_single = false;
                    }
                }
                _ => {
                    self.position += 1;
                    word.push(character);
                }
            }
        }
        self.check_newlines(start)?;
        let source = self.characters.get(start..self.position);
        // `{NAME}<file` assigns the number of the descriptor to NAME.
        let is_redirected = matches!(self.peek(0), Some('<' | '>'));
        if is_redirected && source.is_some_and(|source| source.starts_with(&['{'])) {
            return Err(UnparsedShell);
        }
        if word.expansion == Expansion::Pattern && source.is_some_and(may_expand_to_parent) {
            word.expansion = Expansion::Any;
        }
        let assigned = source.and_then(assigned_name);
        Ok(QuotedWord {
            word,
            is_quoted,
            assigned,
        })
    }

    /// Whether `~` stands for a folder: at the start of a word, and after `=` and `:` of an
    /// assignment. Bash expands arguments of that form as well.
    fn at_tilde_prefix(&self, start: usize, word: &Word) -> bool {
        let Some(before) = self.characters.get(start..self.position) else {
            return false;
        };
        // A pattern may be the subscript of `NAME[x]=~`.
        let may_be_assignment = || !word.is_certain() || assigned_name(before).is_some();
        match before.last() {
            None => true,
            Some('=' | ':') => may_be_assignment(),
            Some(_) => false,
        }
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
                '$' | '`' => {
                    // `"$@"` is any number of words.
                    let parameter = match self.peek(1) {
                        Some('{') => self.peek(2),
                        parameter => parameter,
                    };
                    word.is_single &= parameter != Some('@');
                    self.expansion(word)?;
                }
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
            word.expansion = Expansion::Any;
            return self.backticks();
        }
        match self.peek(0) {
            // What follows the newline decides.
            Some('\\') if self.at_continuation() => Err(UnparsedShell),
            // Arithmetic.
            Some('[') => Err(UnparsedShell),
            Some('(') => {
                self.position += 1;
                word.expansion = Expansion::Any;
                // Arithmetic, or a subshell in a substitution: only the shell itself can decide.
                if self.peek(0) == Some('(') {
                    Err(UnparsedShell)
                } else {
                    self.nested()
                }
            }
            Some('{') => {
                word.expansion = Expansion::Any;
                self.position += 1;
                let start = self.position;
                while self.next()? != '}' {}
                let source = self.characters.get(start..self.position - 1);
                match source.is_some_and(is_simple_parameter) {
                    true => Ok(()),
                    false => Err(UnparsedShell),
                }
            }
            Some(name) if name.is_ascii_alphabetic() || name == '_' => {
                word.expansion = Expansion::Any;
                while self
                    .peek(0)
                    .is_some_and(|name| name.is_ascii_alphanumeric() || name == '_')
                {
                    self.position += 1;
                }
                Ok(())
            }
            Some(special) if special.is_ascii_digit() || "?@*#$!-".contains(special) => {
                word.expansion = Expansion::Any;
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
                // Removed even between single quotes.
                '\\' if self.peek(0) == Some('\n') => return Err(UnparsedShell),
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
        let is_plain = self.word.is_certain() && !self.is_quoted && !text.is_empty();
        is_plain && text.chars().all(|digit| digit.is_ascii_digit())
    }
}

impl Word {
    /// Creates a literal word.
    pub(super) fn certain(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            expansion: Expansion::None,
            is_single: true,
        }
    }

    /// Whether the text is complete: no variables, substitutions or patterns.
    pub(super) fn is_certain(&self) -> bool {
        self.expansion == Expansion::None
    }

    /// Returns a word that starts with the same text.
    pub(super) fn with_unknown_rest(self) -> Self {
        Self {
            expansion: Expansion::Any,
            ..self
        }
    }

    /// Appends a character, unless it follows an expansion: only the prefix of the word is known
    /// then.
    fn push(&mut self, character: char) {
        if self.is_certain() {
            self.text.push(character);
        }
    }
}

impl CurrentCommand {
    fn push(&mut self, quoted: QuotedWord) -> Result<(), UnparsedShell> {
        let QuotedWord {
            word,
            is_quoted,
            assigned,
        } = quoted;
        if self.command.words.is_empty() && !is_quoted {
            match word.text.as_str() {
                "if" | "then" | "else" | "elif" | "fi" | "do" | "done" | "while" | "until"
                | "{" | "}" | "!"
                    if word.is_certain() =>
                {
                    return Ok(());
                }
                "for" if word.is_certain() => self.is_for = true,
                "case" | "esac" | "select" | "function" | "coproc" => return Err(UnparsedShell),
                _ => {}
            }
        }
        // `for NAME do` has no list: the following words would be parsed as one.
        if self.is_for && word.text == "do" {
            return Err(UnparsedShell);
        }
        // A loop over `PATH` is an assignment, too.
        let is_variable = self.is_for && self.command.words.len() == 1;
        if is_variable && !(word.is_certain() && is_plain_variable(&word.text)) {
            return Err(UnparsedShell);
        }
        match assigned.filter(|_| self.command.words.is_empty()) {
            Some(name) => self.command.assignments.push(name),
            None => self.command.words.push(word),
        }
        Ok(())
    }
}

/// Whether a name is a variable that no shell and few programs give a meaning: it has no capital
/// letters.
pub(super) fn is_plain_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(is_plain_letter)
}

fn is_plain_letter(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
}

/// Whether a word with patterns or braces may have the component `..`. Its first dot is in the
/// source, because no pattern matches a dot at the start of a name.
fn may_expand_to_parent(source: &[char]) -> bool {
    let is_quote = |character: &&char| matches!(character, '\\' | '\'' | '"');
    let source: Vec<char> = source.iter().copied().filter(|c| !is_quote(&c)).collect();
    // Braces may be empty.
    let is_start = |character: char| "/={,}".contains(character);
    let may_be_dot = |character: char| ".*?[{,}".contains(character);
    source.iter().enumerate().any(|(index, character)| {
        let before = index.checked_sub(1).and_then(|before| source.get(before));
        *character == '.'
            && before.is_none_or(|before| is_start(*before))
            && source
                .get(index + 1)
                .is_some_and(|after| may_be_dot(*after))
    })
}

/// Returns the variable of `NAME=value` or `NAME+=value`, according to the text with its quotes.
fn assigned_name(source: &[char]) -> Option<String> {
    let (end, _) = source.iter().enumerate().find(|(_, c)| **c == '=')?;
    let name: String = source.get(..end)?.iter().collect();
    let name = name.strip_suffix('+').unwrap_or(&name);
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .chars()
            .all(|rest| rest.is_ascii_alphanumeric() || rest == '_');
    is_name.then(|| name.to_owned())
}

/// Whether the text between `${` and `}` runs no command. Offsets and subscripts are arithmetic,
/// `@P` and `!` evaluate the value, and `=` assigns.
fn is_simple_parameter(source: &[char]) -> bool {
    let text: String = source.iter().collect();
    let name = match text.strip_prefix('#') {
        Some(name) if !name.is_empty() => name,
        _ => text.as_str(),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let rest = name.trim_start_matches(is_name);
    let rest = match rest.len() == name.len() {
        true => rest.strip_prefix(['@', '*', '#', '?', '-', '$']),
        false => Some(rest),
    };
    let Some(rest) = rest else {
        return false;
    };
    let operator = rest.strip_prefix(':').unwrap_or(rest);
    let is_operator = match rest.len() == operator.len() {
        true => operator.starts_with(['-', '+', '?', '#', '%', '/', '^', ',']),
        false => operator.starts_with(['-', '+', '?']),
    };
    let is_plain = !rest.contains(['`', '\'', '"', '\\', '(', '{', '$', '\n', '<', '>']);
    is_plain && (rest.is_empty() || is_operator)
}

/// Whether a line of a here-document without quotes may run a command.
fn has_complex_expansion(line: &str) -> bool {
    let is_complex = |rest: &str| {
        let parameter = rest.split_once('}').map(|(parameter, _)| parameter);
        let parameter = parameter.map(|text| text.chars().collect::<Vec<_>>());
        !parameter.is_some_and(|parameter| is_simple_parameter(&parameter))
    };
    line.contains("$(")
        || line.contains("$[")
        || line.contains('`')
        || line.split("${").skip(1).any(is_complex)
}
