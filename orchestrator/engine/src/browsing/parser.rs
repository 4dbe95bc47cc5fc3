//! Parses the syntax of calls: names, parentheses and Python literals. Evaluates no expressions.

use super::call::InvalidCalls;

/// Maximum number of arguments of a call, and of elements of a list.
const MAX_ARGUMENTS: usize = 100;

/// A parsed call.
#[derive(Debug, PartialEq)]
pub(super) struct ParsedCall {
    pub(super) name: String,
    pub(super) arguments: Vec<Argument>,
}

/// An argument, with its name if it is a keyword argument.
#[derive(Debug, PartialEq)]
pub(super) struct Argument {
    pub(super) name: Option<String>,
    pub(super) value: ArgumentValue,
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ArgumentValue {
    Text(String),
    Number(f64),
    Flag,
    None,
    /// A list of strings.
    List(Vec<String>),
}

pub(super) fn parse(text: &str) -> Result<Vec<ParsedCall>, InvalidCalls> {
    let mut parser = CallParser { text, position: 0 };
    let mut calls = Vec::new();
    loop {
        parser.skip_between_calls();
        if parser.rest().is_empty() {
            return Ok(calls);
        }
        calls.push(parser.call()?);
        parser.skip_blanks();
        if !parser.rest().is_empty() && !parser.rest().starts_with(['\n', '\r', ';', '#']) {
            return Err(parser.error("a line's end or `;`"));
        }
    }
}

struct CallParser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> CallParser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn error(&self, expected: &str) -> InvalidCalls {
        let line = self
            .text
            .get(..self.position)
            .unwrap_or_default()
            .matches('\n')
            .count()
            + 1;
        let found = match self.rest().chars().next() {
            Some(character) => format!("{character:?}"),
            None => "the end".to_owned(),
        };
        InvalidCalls(format!("line {line}: expected {expected}, found {found}"))
    }

    fn next(&mut self) -> Option<char> {
        let character = self.rest().chars().next()?;
        self.position += character.len_utf8();
        Some(character)
    }

    fn consume(&mut self, word: &str) -> bool {
        let is_next = self.rest().starts_with(word);
        if is_next {
            self.position += word.len();
        }
        is_next
    }

    fn consume_while(&mut self, matches: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest
            .find(|character| !matches(character))
            .unwrap_or(rest.len());
        self.position += length;
        rest.get(..length).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        self.consume_while(|character| matches!(character, ' ' | '\t'));
    }

    /// Skips white space, `;`, comments and code fences.
    fn skip_between_calls(&mut self) {
        loop {
            self.consume_while(|character| character.is_whitespace() || character == ';');
            if !self.rest().starts_with('#') && !self.rest().starts_with("```") {
                return;
            }
            self.consume_while(|character| character != '\n');
        }
    }

    /// Skips white space and comments within parentheses and brackets.
    fn skip_within(&mut self) {
        loop {
            self.consume_while(char::is_whitespace);
            if !self.rest().starts_with('#') {
                return;
            }
            self.consume_while(|character| character != '\n');
        }
    }

    fn name(&mut self) -> &'a str {
        if self
            .rest()
            .starts_with(|first: char| first.is_ascii_digit())
        {
            return "";
        }
        self.consume_while(|character| character.is_ascii_alphanumeric() || character == '_')
    }

    fn call(&mut self) -> Result<ParsedCall, InvalidCalls> {
        let name = self.name();
        if name.is_empty() {
            return Err(self.error("a call such as click('12')"));
        }
        self.skip_blanks();
        if !self.consume("(") {
            return Err(self.error(&format!("`(` after {name}")));
        }
        let mut arguments: Vec<Argument> = Vec::new();
        loop {
            self.skip_within();
            if self.consume(")") {
                return Ok(ParsedCall {
                    name: name.to_owned(),
                    arguments,
                });
            }
            let argument = self.argument()?;
            if argument.name.is_none() && arguments.last().is_some_and(|last| last.name.is_some()) {
                return Err(self.error("a name after a named argument"));
            }
            arguments.push(argument);
            self.skip_within();
            if arguments.len() > MAX_ARGUMENTS
                || (!self.consume(",") && !self.rest().starts_with(')'))
            {
                return Err(self.error("`,` or `)`"));
            }
        }
    }

    fn argument(&mut self) -> Result<Argument, InvalidCalls> {
        let start = self.position;
        let name = self.name();
        self.skip_within();
        if !name.is_empty() && !self.rest().starts_with("==") && self.consume("=") {
            self.skip_within();
            return Ok(Argument {
                name: Some(name.to_owned()),
                value: self.value()?,
            });
        }
        self.position = start;
        Ok(Argument {
            name: None,
            value: self.value()?,
        })
    }

    fn value(&mut self) -> Result<ArgumentValue, InvalidCalls> {
        match self.rest().chars().next() {
            Some('[' | '(') => self.list(),
            Some('\'' | '"') => self.text().map(ArgumentValue::Text),
            Some(character)
                if character.is_ascii_digit() || matches!(character, '-' | '+' | '.') =>
            {
                self.number().map(ArgumentValue::Number)
            }
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<ArgumentValue, InvalidCalls> {
        let start = self.position;
        match self.name() {
            "True" | "False" | "true" | "false" => return Ok(ArgumentValue::Flag),
            "None" | "null" => return Ok(ArgumentValue::None),
            "r" if self.rest().starts_with(['\'', '"']) => {
                return self.raw_text().map(ArgumentValue::Text);
            }
            _ => {}
        }
        self.position = start;
        Err(self.error("a text in quotes, a number or a list"))
    }

    fn list(&mut self) -> Result<ArgumentValue, InvalidCalls> {
        let end = if self.next() == Some('[') { "]" } else { ")" };
        let mut texts = Vec::new();
        loop {
            self.skip_within();
            if self.consume(end) {
                return Ok(ArgumentValue::List(texts));
            }
            // No nested lists, so that the depth is bounded.
            if self.rest().starts_with(['[', '(']) {
                return Err(self.error("a text"));
            }
            texts.push(match self.value()? {
                ArgumentValue::Text(text) => text,
                ArgumentValue::Number(number) => number.to_string(),
                _ => return Err(self.error("a list of texts")),
            });
            self.skip_within();
            if texts.len() > MAX_ARGUMENTS || (!self.consume(",") && !self.rest().starts_with(end))
            {
                return Err(self.error(&format!("`,` or `{end}`")));
            }
        }
    }

    fn number(&mut self) -> Result<f64, InvalidCalls> {
        let start = self.position;
        let written = self.consume_while(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.' | '_')
        });
        match written.replace('_', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => {
                self.position = start;
                Err(self.error("a number"))
            }
        }
    }

    /// Consumes the opening quotes: one, or three for a multi-line string.
    fn quotes(&mut self) -> &'static str {
        let all = ["'''", "\"\"\"", "'", "\""];
        all.into_iter()
            .find(|quotes| self.consume(quotes))
            .unwrap_or_default()
    }

    fn raw_text(&mut self) -> Result<String, InvalidCalls> {
        let quotes = self.quotes();
        let Some((text, _)) = self.rest().split_once(quotes) else {
            return Err(self.error("the text's end"));
        };
        self.position += text.len() + quotes.len();
        Ok(text.to_owned())
    }

    fn text(&mut self) -> Result<String, InvalidCalls> {
        let quotes = self.quotes();
        let mut text = String::new();
        loop {
            if self.consume(quotes) {
                return Ok(text);
            }
            match self.next() {
                Some('\\') => self.escaped(&mut text)?,
                Some('\n') if quotes.len() == 1 => {
                    return Err(self.error("the text's end on its line; write \\n for a new line"));
                }
                Some(character) => text.push(character),
                None => return Err(self.error("the text's end")),
            }
        }
    }

    /// Parses an escape. Like Python, keeps an unknown one.
    fn escaped(&mut self, text: &mut String) -> Result<(), InvalidCalls> {
        match self.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('0') => text.push('\0'),
            Some('\n') => {}
            Some(character @ ('\\' | '\'' | '"')) => text.push(character),
            Some('x') => text.push(self.code_point(2)?),
            Some('u') => text.push(self.code_unit()?),
            Some('U') => text.push(self.code_point(8)?),
            Some(character) => text.extend(['\\', character]),
            None => return Err(self.error("the text's end")),
        }
        Ok(())
    }

    fn digits(&mut self, count: usize) -> Result<u32, InvalidCalls> {
        let digits = self
            .rest()
            .get(..count)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| self.error(&format!("{count} hexadecimal digits")))?;
        self.position += count;
        Ok(number)
    }

    fn code_point(&mut self, count: usize) -> Result<char, InvalidCalls> {
        let number = self.digits(count)?;
        char::from_u32(number).ok_or_else(|| self.error("a character's number"))
    }

    /// Parses a `\u` escape. Accepts surrogate pairs, which models write as in JSON.
    fn code_unit(&mut self) -> Result<char, InvalidCalls> {
        let first = self.digits(4)?;
        if !(0xd800..0xdc00).contains(&first) || !self.consume("\\u") {
            return char::from_u32(first).ok_or_else(|| self.error("a character's number"));
        }
        let second = self.digits(4)?;
        let is_low = (0xdc00..0xe000).contains(&second);
        let joined = is_low.then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
        joined
            .and_then(char::from_u32)
            .ok_or_else(|| self.error("a character's number"))
    }
}
