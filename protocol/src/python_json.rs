//! Converts the output of Python's `json` module to JSON that `serde_json` accepts.
//!
//! Python writes `NaN` and `Infinity`, which are not JSON, and escapes of unpaired surrogates,
//! which no Rust string can hold. `serde_json` rejects the whole document for one of them and has
//! no option to accept them. A parser that does would be a second JSON parser in the program.
//! Replacing only these tokens is one pass without recursion, and `serde_json` still validates the
//! rest.

use std::borrow::Cow;

/// Replaces the tokens that only Python writes: a non-finite number becomes `null`, an unpaired
/// surrogate U+FFFD. Borrows `text` if it has none of them. The result is at most a third longer.
pub fn to_json(text: &[u8]) -> Cow<'_, [u8]> {
    let mut json = Vec::new();
    let (mut rest, mut uncopied, mut is_in_string) = (text, text, false);
    while let Some(first) = rest.first() {
        let (length, replacement) = if is_in_string {
            string_token(rest)
        } else {
            token(rest)
        };
        is_in_string ^= *first == b'"';
        if let Some(replacement) = replacement {
            json.extend_from_slice(&uncopied[..uncopied.len() - rest.len()]);
            json.extend_from_slice(replacement);
            uncopied = &rest[length..];
        }
        rest = &rest[length..];
    }
    if uncopied.len() == text.len() {
        return Cow::Borrowed(text);
    }
    json.extend_from_slice(uncopied);
    Cow::Owned(json)
}

/// Length and replacement of the token at the start of a non-empty text.
type PythonToken = (usize, Option<&'static [u8]>);

fn token(text: &[u8]) -> PythonToken {
    const NULL: Option<&[u8]> = Some(b"null");
    let is_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    match text {
        [b'N', b'a', b'N', ..] => (3, NULL),
        [b'I', ..] if text.starts_with(b"Infinity") => (8, NULL),
        [b'-', ..] if text.starts_with(b"-Infinity") => (9, NULL),
        [b'-' | b'0'..=b'9', ..] => {
            let length = text.iter().take_while(is_number).count();
            let number = std::str::from_utf8(&text[..length])
                .ok()
                .and_then(|number| number.parse::<f64>().ok());
            (
                length,
                NULL.filter(|_| number.is_some_and(f64::is_infinite)),
            )
        }
        _ => (1, None),
    }
}

fn string_token(text: &[u8]) -> PythonToken {
    match (code_unit(text), text) {
        (Some(0xD800..=0xDBFF), _)
            if matches!(text.get(6..).and_then(code_unit), Some(0xDC00..=0xDFFF)) =>
        {
            (12, None)
        }
        (Some(0xD800..=0xDFFF), _) => (6, Some(b"\\ufffd")),
        (_, [b'\\', _, ..]) => (2, None),
        _ => (1, None),
    }
}

/// Returns the code unit of an escape `\uXXXX`.
fn code_unit(text: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(text.strip_prefix(br"\u")?.get(..4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::{Value, json};

    use super::to_json;

    fn read(text: &str) -> Result<Value, serde_json::Error> {
        serde_json::from_slice(&to_json(text.as_bytes()))
    }

    #[test]
    fn tokens_that_only_python_has_are_replaced() {
        for (text, expected) in [
            (
                "[NaN, Infinity, -Infinity, 1e999, -1e999]",
                json!([null, null, null, null, null]),
            ),
            (
                r#"{"a\ud83d": "\udE00b", "c": "\ud83d\ud83d\ude00"}"#,
                json!({"a\u{fffd}": "\u{fffd}b", "c": "\u{fffd}😀"}),
            ),
            (
                r#"["NaN \"Infinity", NaN, "\\", NaN, "\\\ud800"]"#,
                json!(["NaN \"Infinity", null, "\\", null, "\\\u{fffd}"]),
            ),
            (
                r#"["\\ud800 1e999", "\"-Infinity"]"#,
                json!(["\\ud800 1e999", "\"-Infinity"]),
            ),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn json_is_borrowed_unchanged() {
        for text in [
            "",
            r#"{"a": [1, -2.5e3, "\ud83d\ude00\u00e9\n", true, null]}"#,
            "\"\\",
            "\"\\u12",
            "nonsense",
            "\u{fffd}\"",
        ] {
            assert!(
                matches!(to_json(text.as_bytes()), Cow::Borrowed(same) if same == text.as_bytes()),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_json_stays_invalid() {
        for text in [
            "[NaNNaN]",
            "[-NaN]",
            "[Infinit]",
            "[1e999e9]",
            "[\"\\ud8\"]",
            "[+Infinity]",
            "\"\n\"",
        ] {
            read(text).unwrap_err();
        }
    }
}
