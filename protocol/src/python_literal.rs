//! Parses Python literals: `{'FOO': 'bar'}` in V0's environment variables and older events.
//!
//! Hand-written because the crate `py_literal` recurses without a limit and brings a parser
//! generator and big integers into the action server, which links this crate. `json5` reads neither
//! `True` and `None` nor tuples. Supports only values that JSON has, nested at most 32 levels
//! deep. Evaluates nothing.

use serde_json::{Map, Number, Value};

const MAX_DEPTH: usize = 32;

/// Parses a literal of strings, numbers, `True`, `False`, `None`, lists, tuples and dictionaries
/// with string keys. `None` for any other text.
pub fn parse(text: &str) -> Option<Value> {
    let mut parser = PythonLiteralParser { rest: text };
    let value = parser.value(MAX_DEPTH)?;
    parser.skip_blanks().is_empty().then_some(value)
}

struct PythonLiteralParser<'a> {
    rest: &'a str,
}

impl<'a> PythonLiteralParser<'a> {
    fn skip_blanks(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        self.rest
    }

    fn consume(&mut self, token: &str) -> bool {
        let rest = self.skip_blanks().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn next(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let letter = letters.next()?;
        self.rest = letters.as_str();
        Some(letter)
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let inner = depth.checked_sub(1)?;
        match self.skip_blanks().chars().next()? {
            '\'' | '"' => self.texts().map(Value::String),
            '{' => self.dict(inner).map(Value::Object),
            '[' => self.elements("[", "]", inner),
            '(' => self.elements("(", ")", inner),
            _ => self.keyword_or_number(),
        }
    }

    fn dict(&mut self, depth: usize) -> Option<Map<String, Value>> {
        let mut map = Map::new();
        self.consume("{");
        while !self.consume("}") {
            self.skip_blanks();
            let key = self.texts()?;
            if !self.consume(":") {
                return None;
            }
            map.insert(key, self.value(depth)?);
            if !self.consume(",") && !self.skip_blanks().starts_with('}') {
                return None;
            }
        }
        Some(map)
    }

    fn elements(&mut self, open: &str, close: &str, depth: usize) -> Option<Value> {
        let mut elements = Vec::new();
        self.consume(open);
        while !self.consume(close) {
            elements.push(self.value(depth)?);
            if !self.consume(",") && !self.skip_blanks().starts_with(close) {
                return None;
            }
        }
        Some(Value::Array(elements))
    }

    /// `None`, `True`, `False` or a number.
    fn keyword_or_number(&mut self) -> Option<Value> {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "+-._".contains(letter);
        let end = self
            .rest
            .find(|letter| !is_part(letter))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "None" => Some(Value::Null),
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            number
                if number
                    .starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) =>
            {
                let digits = number.replace('_', "");
                let number = serde_json::from_str(&digits).ok();
                number
                    .or_else(|| Number::from_f64(digits.parse().ok()?))
                    .map(Value::Number)
            }
            _ => None,
        }
    }

    /// Parses adjacent strings, which Python concatenates.
    fn texts(&mut self) -> Option<String> {
        let mut text = self.text()?;
        while self.skip_blanks().starts_with(['\'', '"']) {
            text.push_str(&self.text()?);
        }
        Some(text)
    }

    fn text(&mut self) -> Option<String> {
        let quote = self.next().filter(|letter| matches!(letter, '\'' | '"'))?;
        let mut text = String::new();
        loop {
            match self.next()? {
                letter if letter == quote => return Some(text),
                '\n' => return None,
                '\\' => self.escape(&mut text)?,
                letter => text.push(letter),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let letter = match self.next()? {
            '\n' => return Some(()),
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            letter @ ('\\' | '\'' | '"') => letter,
            'x' => self.code_point(2)?,
            'u' => self.code_point(4)?,
            'U' => self.code_point(8)?,
            // A character by name: `repr` does not write it.
            'N' => return None,
            first @ '0'..='7' => self.octal(first)?,
            // Python keeps the backslash of an unknown escape.
            other => {
                text.push('\\');
                other
            }
        };
        text.push(letter);
        Some(())
    }

    /// Parses `length` hex digits. An unpaired surrogate becomes U+FFFD.
    fn code_point(&mut self, length: usize) -> Option<char> {
        let (digits, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        match value {
            0xD800..=0xDFFF => Some(char::REPLACEMENT_CHARACTER),
            value => char::from_u32(value),
        }
    }

    /// Parses an octal escape of up to three digits.
    fn octal(&mut self, first: char) -> Option<char> {
        let mut value = first.to_digit(8)?;
        for _ in 0..2 {
            let Some(digit) = self
                .rest
                .chars()
                .next()
                .and_then(|letter| letter.to_digit(8))
            else {
                break;
            };
            self.next();
            value = value * 8 + digit;
        }
        char::from_u32(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{MAX_DEPTH, parse};

    #[test]
    fn literal_is_parsed_as_python_evaluates_it() {
        let dict = r#" {'a': 'it\'s', "b": "\"\\\x41\u00e9\U0001f600\n", 'c': [1, -2, 0.5,], 'd': (None, True), 'e': {}, } "#;
        for (text, value) in [
            (
                dict,
                json!({"a": "it's", "b": "\"\\Aé😀\n", "c": [1, -2, 0.5], "d": [null, true], "e": {}}),
            ),
            ("{}", json!({})),
            (
                r"{'a': '\q\101\0\ud800 a\
b'}",
                json!({"a": "\\qA\0\u{fffd} ab"}),
            ),
            (
                " ['a', \"b'c\", 'd\\'e', '\\x41\\u00e9\\n\\d'] ",
                json!(["a", "b'c", "d'e", "Aé\n\\d"]),
            ),
            (
                "[{'url': 'http://h', 'api_key': None, 'timeout': 60, 'on': True},]",
                json!([{"url": "http://h", "api_key": null, "timeout": 60, "on": true}]),
            ),
            (
                "(1, -2.5, 1_000, False, (), +1., 18446744073709551615)",
                json!([1, -2.5, 1000, false, [], 1.0, u64::MAX]),
            ),
            ("'a' 'b'", json!("ab")),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn text_other_than_a_literal_is_rejected() {
        let deep = |depth: usize| format!("{{'a': {}1{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&deep(MAX_DEPTH - 2)).is_some());
        for text in [
            "",
            "{",
            "{'a'}",
            "{'a': 1",
            "{'a': 1} + 1",
            "{'a': 1 'b': 2}",
            "{1: 2}",
            "{'a': open('x')}",
            "{'a': 'x",
            "{'a': 'x\n'}",
            r"{'a': '\x+1'}",
            r"{'a': '\N{BULLET}'}",
            r"{'a': '\ué'}",
            "{'a': [1 2]}",
            "['a' 1]",
            "[1 2]",
            "open('x')",
            "__import__",
            "_1",
            "-inf",
            "'a",
            "'a\nb'",
            "[]x",
            &deep(MAX_DEPTH - 1),
            &deep(1 << 20),
        ] {
            assert_eq!(parse(text), None, "{}", text.get(..40).unwrap_or(text));
        }
    }
}
