//! Deserialization helpers for the dialects of V0's versions: null in place of a default, errors
//! with field paths.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use crate::event::EventError;

/// For `deserialize_with` together with `default`: null means the default.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// For `deserialize_with` together with a default of −1, which V0 uses for "none": null means −1.
pub(crate) fn null_is_minus_one<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + From<i8>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(|| T::from(-1)))
}

/// For `deserialize_with` together with a default of −1: null means −1. Python's integers are
/// unbounded, so an integer that does not fit into 64 bits saturates.
pub(crate) fn integer_or_minus_one<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<i64, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(-1),
        Value::Number(number) => Ok(number
            .as_i64()
            .or_else(|| Some(number.as_f64()? as i64))
            .unwrap_or(-1)),
        other => Err(D::Error::custom(format!(
            "invalid type: {other}, expected an integer"
        ))),
    }
}

/// For `deserialize_with` together with `default`: a string as is, null as an empty string, any
/// other value as its JSON.
pub(crate) fn text_or_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// Maximum length of a list of strings. An empty string takes eight times as much memory as JSON
/// text.
const MAX_TEXTS: usize = 10_000;

/// For `deserialize_with` together with `default`: a list of at most [`MAX_TEXTS`] strings, null as
/// `None`.
pub(crate) fn bounded_texts<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    struct BoundedTexts;

    impl<'de> Visitor<'de> for BoundedTexts {
        type Value = Option<Vec<String>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MAX_TEXTS} texts")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut texts = Vec::new();
            while let Some(text) = list.next_element()? {
                if texts.len() == MAX_TEXTS {
                    return Err(A::Error::invalid_length(MAX_TEXTS + 1, &self));
                }
                texts.push(text);
            }
            Ok(Some(texts))
        }
    }

    deserializer.deserialize_any(BoundedTexts)
}

/// Deserializes `value`, which is at the path `under` of an event. An empty path is the event
/// itself. A `&Map` compiles to half the code of a `&Value`.
pub(crate) fn read<'de, T: DeserializeOwned>(
    under: &str,
    value: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, EventError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        let field = match (under, inner.as_str()) {
            (under, ".") => under.to_owned(),
            ("", inner) => inner.to_owned(),
            (under, inner) => format!("{under}.{inner}"),
        };
        EventError::Malformed {
            field,
            problem: error.into_inner().to_string(),
        }
    })
}
