//! Counts the values of a JSON text before it is parsed: `[],[],…` takes twenty times its length in
//! memory, objects with one member a hundred times, and much time. Texts and pictures, which may be
//! long, are one value each.

use crate::error::ApiError;

/// Maximum number of values of a body or a message.
pub(crate) const MAX_VALUES: usize = 100_000;

/// Length of the parts after each of which the count is compared.
const PART_BYTES: usize = 64 << 10;

/// Counts the values in a text that arrives in parts. Of a text that is not JSON, the count has no
/// meaning.
#[derive(Debug, Default)]
pub(crate) struct ValueCounter {
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
    pub(crate) fn add(&mut self, part: impl Iterator<Item = u8>) -> usize {
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

/// Rejects a text with more values than the maximum. `field` is its name in errors.
///
/// # Errors
/// [`ApiError::Invalid`].
pub(crate) fn check_count(field: &str, json: &[u8], max: usize) -> Result<(), ApiError> {
    let mut counter = ValueCounter::default();
    if json
        .chunks(PART_BYTES)
        .any(|part| counter.add(part.iter().copied()) > max)
    {
        return Err(ApiError::invalid(
            field,
            format_args!("must have at most {max} values"),
        ));
    }
    Ok(())
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
            let counts = json.bytes().map(|byte| counter.add([byte].into_iter()));
            assert_eq!(counts.last(), Some(count), "{json} in parts");
        }
        let many = |length: usize| {
            check_count(
                "body",
                format!("[{}0]", "[],".repeat(length)).as_bytes(),
                1000,
            )
        };
        assert!(many(400).is_ok());
        assert_eq!(
            many(100_000).unwrap_err().to_string(),
            "body: must have at most 1000 values"
        );
    }
}
