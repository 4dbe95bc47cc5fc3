//! When an event was appended, as V0 writes it.

use serde::{Deserialize, Serialize};

/// ISO 8601 with up to six digits of a second, as in `2025-10-03T12:34:56.789012`. V0 writes local time without a
/// zone, we write UTC; what was read is kept to the letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(String);

impl Timestamp {
    /// The text on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Timestamp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const SHAPE: &str = "dddd-dd-ddTdd:dd:dd";
        let begins_right = text.len() >= SHAPE.len()
            && SHAPE.bytes().zip(text.bytes()).all(|(shape, byte)| match shape {
                b'd' => byte.is_ascii_digit(),
                b'T' => byte == b'T' || byte == b' ',
                separator => byte == separator,
            });
        let rest = text.as_bytes().get(SHAPE.len()..).unwrap_or_default();
        let ends_right = rest.iter().all(|byte| byte.is_ascii_digit() || b".:+-Z".contains(byte));
        if begins_right && ends_right {
            Ok(Self(text))
        } else {
            Err(format!("a timestamp looks like 2025-10-03T12:34:56.789012, not {text:?}"))
        }
    }
}

impl From<Timestamp> for String {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.0
    }
}
