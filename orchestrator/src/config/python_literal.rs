//! Python literals, the notation of V0's environment variables for lists and dictionaries: `{'FOO':
//! 'bar'}`.
//!
//! Own code, because `py_literal` (last release in 2020) brings pest and num-bigint, and `json5`
//! reads neither `True` and `None` nor tuples.

use serde_json::{Map, Number, Value};

/// Maximum nesting of lists and dictionaries.
const MAX_DEPTH: usize = 32;

/// Parses a literal of strings, numbers, `True`, `False`, `None`, lists, tuples and dictionaries
/// with string keys. `None` for any other text.
pub(super) fn parse(text: &str) -> Option<Value> {
    let mut parser = Parser { rest: text };
    let value = parser.value(MAX_DEPTH)?;
    parser.skip_space();
    parser.rest.is_empty().then_some(value)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_space();
        match self.rest.chars().next()? {
            '[' => self.items('[', ']', depth),
            '(' => self.items('(', ')', depth),
            '{' => self.dictionary(depth),
            '\'' | '"' => {
                let mut text = self.text()?;
                // Python concatenates adjacent strings.
                while self.peek().is_some_and(|next| matches!(next, '\'' | '"')) {
                    text.push_str(&self.text()?);
                }
                Some(Value::String(text))
            }
            _ => self.word(),
        }
    }

    fn items(&mut self, open: char, close: char, depth: usize) -> Option<Value> {
        self.consume(open)?;
        let mut items = Vec::new();
        while self.consume(close).is_none() {
            items.push(self.value(depth.checked_sub(1)?)?);
            if self.consume(',').is_none() && self.peek() != Some(close) {
                return None;
            }
        }
        Some(Value::Array(items))
    }

    fn dictionary(&mut self, depth: usize) -> Option<Value> {
        self.consume('{')?;
        let mut entries = Map::new();
        while self.consume('}').is_none() {
            let Value::String(key) = self.value(depth.checked_sub(1)?)? else {
                return None;
            };
            self.consume(':')?;
            entries.insert(key, self.value(depth.checked_sub(1)?)?);
            if self.consume(',').is_none() && self.peek() != Some('}') {
                return None;
            }
        }
        Some(Value::Object(entries))
    }

    fn word(&mut self) -> Option<Value> {
        let is_end = |letter: char| !letter.is_ascii_alphanumeric() && !"_.+-".contains(letter);
        let (word, rest) = self
            .rest
            .split_at(self.rest.find(is_end).unwrap_or(self.rest.len()));
        self.rest = rest;
        match word {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::Null),
            _ if !word
                .starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) =>
            {
                None
            }
            _ => {
                let digits = word.replace('_', "");
                let integer = digits.parse::<i64>().ok().map(Number::from);
                integer
                    .or_else(|| Number::from_f64(digits.parse().ok()?))
                    .map(Value::Number)
            }
        }
    }

    fn text(&mut self) -> Option<String> {
        self.skip_space();
        let quote = self.rest.chars().next()?;
        let mut letters = self.rest.chars();
        letters.next();
        let mut text = String::new();
        loop {
            match letters.next()? {
                '\\' => text.extend(escaped(&mut letters)?),
                '\n' => return None,
                letter if letter == quote => break,
                letter => text.push(letter),
            }
        }
        self.rest = letters.as_str();
        Some(text)
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest.chars().next()
    }

    fn consume(&mut self, expected: char) -> Option<()> {
        self.skip_space();
        self.rest = self.rest.strip_prefix(expected)?;
        Some(())
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }
}

/// Decodes an escape sequence after its backslash. `None` if it is invalid.
fn escaped(letters: &mut std::str::Chars<'_>) -> Option<Vec<char>> {
    let letter = letters.next()?;
    let digits = match letter {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        '\n' => return Some(Vec::new()),
        'n' => return Some(vec!['\n']),
        't' => return Some(vec!['\t']),
        'r' => return Some(vec!['\r']),
        '\\' | '\'' | '"' => return Some(vec![letter]),
        // Python keeps an unknown escape sequence as it is.
        other => return Some(vec!['\\', other]),
    };
    let code = letters.as_str().get(..digits)?;
    letters.nth(digits - 1);
    Some(vec![char::from_u32(u32::from_str_radix(code, 16).ok()?)?])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literal_is_read_as_python_reads_it() {
        for (text, value) in [
            ("{'FOO': 'bar'}", json!({"FOO": "bar"})),
            (
                " ['a', \"b'c\", 'd\\'e', '\\x41\\u00e9\\n\\d'] ",
                json!(["a", "b'c", "d'e", "Aé\n\\d"]),
            ),
            (
                "[{'url': 'http://h', 'api_key': None, 'timeout': 60, 'on': True},]",
                { json!([{"url": "http://h", "api_key": null, "timeout": 60, "on": true}]) },
            ),
            (
                "(1, -2.5, 1_000, False, ())",
                json!([1, -2.5, 1000, false, []]),
            ),
            ("'a' 'b'", json!("ab")),
            ("{}", json!({})),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn anything_but_a_literal_is_refused() {
        let deep = "[".repeat(1000);
        for text in [
            "",
            "{",
            "['a' 1]",
            "[1 2]",
            "{1: 2}",
            "open('x')",
            "__import__",
            "'a",
            "'a\nb'",
            "[]x",
            &deep,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
