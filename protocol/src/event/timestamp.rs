//! The time of an event, in V0's format.

use serde::{Deserialize, Serialize};

/// An ISO 8601 time with up to six fractional digits, such as `2025-10-03T12:34:56.789012`. V0
/// writes local time without a zone, Glovebox writes UTC. A timestamp that was read serializes
/// unchanged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, example = "2025-10-03T12:34:56.789012"))]
pub struct Timestamp(String);

/// Start of every time. `d` is a digit.
const SHAPE: &str = "dddd-dd-ddTdd:dd:dd";

impl Timestamp {
    /// Returns the wire format.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the same time with the zone `Z`, unless it has a zone: clients take a time without
    /// one for their local time. For times of Glovebox, which are UTC.
    pub fn with_utc_zone(&self) -> Self {
        let has_zone = self
            .0
            .bytes()
            .skip(SHAPE.len())
            .any(|byte| b"+-Z".contains(&byte));
        if has_zone {
            self.clone()
        } else {
            Self(format!("{}Z", self.0))
        }
    }
}

impl TryFrom<String> for Timestamp {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_start_valid = text.len() >= SHAPE.len()
            && SHAPE
                .bytes()
                .zip(text.bytes())
                .all(|(shape, byte)| match shape {
                    b'd' => byte.is_ascii_digit(),
                    b'T' => byte == b'T' || byte == b' ',
                    separator => byte == separator,
                });
        let rest = text.as_bytes().get(SHAPE.len()..).unwrap_or_default();
        let is_rest_valid = rest
            .iter()
            .all(|byte| byte.is_ascii_digit() || b".:+-Z".contains(byte));
        if is_start_valid && is_rest_valid {
            Ok(Self(text))
        } else {
            Err(format!(
                "a timestamp looks like 2025-10-03T12:34:56.789012, not {text:?}"
            ))
        }
    }
}

impl From<Timestamp> for String {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_is_added_to_a_time_without_one() {
        for (text, expected) in [
            ("2025-10-03T12:34:56.789012", "2025-10-03T12:34:56.789012Z"),
            ("2025-10-03T12:34:56", "2025-10-03T12:34:56Z"),
            ("2025-10-03T12:34:56Z", "2025-10-03T12:34:56Z"),
            ("2025-10-03T12:34:56.7-02:00", "2025-10-03T12:34:56.7-02:00"),
        ] {
            let time = Timestamp::try_from(text.to_owned()).unwrap();
            assert_eq!(time.with_utc_zone().as_str(), expected);
        }
    }
}
