//! The language itself: names, parentheses, and literals as Python writes them. Nothing in it can be computed.

use super::call::InvalidCalls;

/// Arguments of one call, and texts of one list.
const MOST_ARGUMENTS: usize = 100;

/// A call as it is written.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    pub(super) name: String,
    pub(super) arguments: Vec<Argument>,
}

/// An argument, with its name if it is given by name.
#[derive(Debug, PartialEq)]
pub(super) struct Argument {
    pub(super) name: Option<String>,
    pub(super) value: Value,
}

/// What an argument can be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(String),
    Number(f64),
    Flag,
    None,
    /// Of texts.
    List(Vec<String>),
}

pub(super) fn read(text: &str) -> Result<Vec<Written>, InvalidCalls> {
    let mut reader = Reader { text, at: 0 };
    let mut calls = Vec::new();
    loop {
        reader.skip_between_calls();
        if reader.rest().is_empty() {
            return Ok(calls);
        }
        calls.push(reader.call()?);
        reader.skip_blanks();
        if !reader.rest().is_empty() && !reader.rest().starts_with(['\n', '\r', ';', '#']) {
            return Err(reader.wrong("a line's end or `;`"));
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn wrong(&self, expected: &str) -> InvalidCalls {
        let line = self.text.get(..self.at).unwrap_or_default().matches('\n').count() + 1;
        let found = match self.rest().chars().next() {
            Some(letter) => format!("{letter:?}"),
            None => "the end".to_owned(),
        };
        InvalidCalls(format!("line {line}: expected {expected}, found {found}"))
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(letter)
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.rest().starts_with(word);
        if is_next {
            self.at += word.len();
        }
        is_next
    }

    fn take_while(&mut self, is_taken: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|letter| !is_taken(letter)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        self.take_while(|letter| matches!(letter, ' ' | '\t'));
    }

    /// White space, `;`, comments, and the fences around code.
    fn skip_between_calls(&mut self) {
        loop {
            self.take_while(|letter| letter.is_whitespace() || letter == ';');
            if !self.rest().starts_with('#') && !self.rest().starts_with("```") {
                return;
            }
            self.take_while(|letter| letter != '\n');
        }
    }

    /// White space and comments, within parentheses and brackets.
    fn skip_within(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest().starts_with('#') {
                return;
            }
            self.take_while(|letter| letter != '\n');
        }
    }

    fn name(&mut self) -> &'a str {
        match self.rest().starts_with(|first: char| first.is_ascii_digit()) {
            true => "",
            false => self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '_'),
        }
    }

    fn call(&mut self) -> Result<Written, InvalidCalls> {
        let name = self.name();
        if name.is_empty() {
            return Err(self.wrong("a call such as click('12')"));
        }
        self.skip_blanks();
        if !self.take("(") {
            return Err(self.wrong(&format!("`(` after {name}")));
        }
        let mut arguments: Vec<Argument> = Vec::new();
        loop {
            self.skip_within();
            if self.take(")") {
                return Ok(Written { name: name.to_owned(), arguments });
            }
            let argument = self.argument()?;
            if argument.name.is_none() && arguments.last().is_some_and(|last| last.name.is_some()) {
                return Err(self.wrong("a name before what follows a named argument"));
            }
            arguments.push(argument);
            self.skip_within();
            if arguments.len() > MOST_ARGUMENTS || (!self.take(",") && !self.rest().starts_with(')')) {
                return Err(self.wrong("`,` or `)`"));
            }
        }
    }

    fn argument(&mut self) -> Result<Argument, InvalidCalls> {
        let begin = self.at;
        let name = self.name();
        self.skip_within();
        if !name.is_empty() && !self.rest().starts_with("==") && self.take("=") {
            self.skip_within();
            return Ok(Argument { name: Some(name.to_owned()), value: self.value()? });
        }
        self.at = begin;
        Ok(Argument { name: None, value: self.value()? })
    }

    fn value(&mut self) -> Result<Value, InvalidCalls> {
        match self.rest().chars().next() {
            Some('[' | '(') => self.list(),
            Some('\'' | '"') => self.text().map(Value::Text),
            Some(letter) if letter.is_ascii_digit() || matches!(letter, '-' | '+' | '.') => {
                self.number().map(Value::Number)
            }
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Result<Value, InvalidCalls> {
        let begin = self.at;
        match self.name() {
            "True" | "False" | "true" | "false" => return Ok(Value::Flag),
            "None" | "null" => return Ok(Value::None),
            "r" if self.rest().starts_with(['\'', '"']) => return self.raw_text().map(Value::Text),
            _ => {}
        }
        self.at = begin;
        Err(self.wrong("a text in quotes, a number or a list"))
    }

    fn list(&mut self) -> Result<Value, InvalidCalls> {
        let end = if self.next() == Some('[') { "]" } else { ")" };
        let mut texts = Vec::new();
        loop {
            self.skip_within();
            if self.take(end) {
                return Ok(Value::List(texts));
            }
            texts.push(match self.rest().starts_with(['[', '(']) {
                // No list of lists: so the depth has a bound.
                true => return Err(self.wrong("a text")),
                false => match self.value()? {
                    Value::Text(text) => text,
                    Value::Number(number) => number.to_string(),
                    _ => return Err(self.wrong("a list of texts")),
                },
            });
            self.skip_within();
            if texts.len() > MOST_ARGUMENTS || (!self.take(",") && !self.rest().starts_with(end)) {
                return Err(self.wrong(&format!("`,` or `{end}`")));
            }
        }
    }

    fn number(&mut self) -> Result<f64, InvalidCalls> {
        let begin = self.at;
        let written = self
            .take_while(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.' | '_'));
        match written.replace('_', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => {
                self.at = begin;
                Err(self.wrong("a number"))
            }
        }
    }

    /// The quotes that a text ends with, three of them for one over several lines.
    fn quotes(&mut self) -> &'static str {
        let all = ["'''", "\"\"\"", "'", "\""];
        all.into_iter().find(|quotes| self.take(quotes)).unwrap_or_default()
    }

    fn raw_text(&mut self) -> Result<String, InvalidCalls> {
        let quotes = self.quotes();
        let Some((text, _)) = self.rest().split_once(quotes) else {
            return Err(self.wrong("the text's end"));
        };
        self.at += text.len() + quotes.len();
        Ok(text.to_owned())
    }

    fn text(&mut self) -> Result<String, InvalidCalls> {
        let quotes = self.quotes();
        let mut text = String::new();
        loop {
            if self.take(quotes) {
                return Ok(text);
            }
            match self.next() {
                Some('\\') => self.escaped(&mut text)?,
                Some('\n') if quotes.len() == 1 => {
                    return Err(self.wrong("the text's end on its line; write \\n for a new line"));
                }
                Some(letter) => text.push(letter),
                None => return Err(self.wrong("the text's end")),
            }
        }
    }

    /// As Python does: an escape that it does not know stays as it is.
    fn escaped(&mut self, text: &mut String) -> Result<(), InvalidCalls> {
        match self.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some('0') => text.push('\0'),
            Some('\n') => {}
            Some(letter @ ('\\' | '\'' | '"')) => text.push(letter),
            Some('x') => text.push(self.code_point(2)?),
            Some('u') => text.push(self.code_unit()?),
            Some('U') => text.push(self.code_point(8)?),
            Some(letter) => text.extend(['\\', letter]),
            None => return Err(self.wrong("the text's end")),
        }
        Ok(())
    }

    fn digits(&mut self, count: usize) -> Result<u32, InvalidCalls> {
        let digits =
            self.rest().get(..count).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| self.wrong(&format!("{count} hexadecimal digits")))?;
        self.at += count;
        Ok(number)
    }

    fn code_point(&mut self, count: usize) -> Result<char, InvalidCalls> {
        let number = self.digits(count)?;
        char::from_u32(number).ok_or_else(|| self.wrong("a character's number"))
    }

    /// Models write what is beyond 16 bits as JSON does: in two halves.
    fn code_unit(&mut self) -> Result<char, InvalidCalls> {
        let first = self.digits(4)?;
        if !(0xd800..0xdc00).contains(&first) || !self.take("\\u") {
            return char::from_u32(first).ok_or_else(|| self.wrong("a character's number"));
        }
        let second = self.digits(4)?;
        let is_low = (0xdc00..0xe000).contains(&second);
        let joined = is_low.then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
        joined.and_then(char::from_u32).ok_or_else(|| self.wrong("a character's number"))
    }
}
