//! JSON from models, tool servers, browsers and clients: the number of its values is bounded
//! before it is parsed.
//!
//! `[],[],…` takes twenty times its length in memory, objects with one member two hundred times,
//! and much time. Texts and pictures, which may be long, are one value each.

use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Value};

/// Maximum number of values of a message.
pub const MAX_VALUES: usize = 100_000;

/// Length of the parts after each of which the count is compared.
const PART_BYTES: usize = 64 << 10;

/// Counts the values in a text that arrives in parts. Of a text that is not JSON, the count has no
/// meaning.
#[derive(Debug, Default)]
pub struct ValueCounter {
    count: usize,
    position: Position,
}

#[derive(Debug, Default)]
enum Position {
    #[default]
    Structure,
    String,
    Escape,
}

impl ValueCounter {
    /// Counts the next part, and returns the maximum number of values so far: each one but the
    /// first follows a comma or an opening bracket.
    pub fn add(&mut self, part: impl IntoIterator<Item = u8>) -> usize {
        for byte in part {
            self.position = match (&self.position, byte) {
                (Position::Structure, b'"') | (Position::Escape, _) => Position::String,
                (Position::Structure, byte) => {
                    self.count += usize::from(matches!(byte, b',' | b'[' | b'{'));
                    Position::Structure
                }
                (Position::String, b'"') => Position::Structure,
                (Position::String, b'\\') => Position::Escape,
                (Position::String, _) => Position::String,
            };
        }
        self.count
    }
}

/// Whether a text has at most this many values.
pub fn has_at_most(json: &[u8], max: usize) -> bool {
    let mut counter = ValueCounter::default();
    json.chunks(PART_BYTES)
        .all(|part| counter.add(part.iter().copied()) <= max)
}

/// Parses a text with at most [`MAX_VALUES`] values.
///
/// # Errors
/// As `serde_json::from_slice`, and if it has more values.
pub fn from_slice<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    if has_at_most(json, MAX_VALUES) {
        serde_json::from_slice(json)
    } else {
        let text = format!("it has more than {MAX_VALUES} values");
        Err(serde_json::Error::custom(text))
    }
}

/// Like [`from_slice`].
///
/// # Errors
/// As [`from_slice`].
pub fn from_str<T: DeserializeOwned>(json: &str) -> serde_json::Result<T> {
    from_slice(json.as_bytes())
}

/// Number of the values in an object, with itself.
pub fn count_values(map: &Map<String, Value>) -> usize {
    1 + map.values().map(count).sum::<usize>()
}

/// Number of the values in a value, with itself.
pub fn count(value: &Value) -> usize {
    match value {
        Value::Object(map) => count_values(map),
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (json, count) in [
            ("1", 0),
            ("[1, 2, {\"a\": [], \"b\": null}]", 6),
            (r#"["[,{", "\"[,", "\\", ","]"#, 4),
            (r#"{"a,\\\"": ""}"#, 1),
        ] {
            assert_eq!(ValueCounter::default().add(json.bytes()), count, "{json}");
            let mut counter = ValueCounter::default();
            let counts = json.bytes().map(|byte| counter.add([byte]));
            assert_eq!(counts.last(), Some(count), "{json} in parts");
        }
    }

    #[test]
    fn text_with_too_many_values_is_not_parsed() {
        let many = |length: usize| from_str::<Value>(&format!("[{}0]", "[],".repeat(length)));
        assert!(many(MAX_VALUES / 2 - 1).is_ok());
        let error = many(MAX_VALUES).unwrap_err().to_string();
        assert_eq!(error, "it has more than 100000 values");
    }
}
