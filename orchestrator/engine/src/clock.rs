//! Reads the clock, in V0's timestamp format. Pure code receives the time as an input instead.

use protocol::Timestamp;

/// V0's format with all six fractional digits, so that timestamps sort as text.
const FORMAT: &str = "%Y-%m-%dT%H:%M:%S%.6f";

/// Returns the current time, in UTC.
#[expect(clippy::expect_used, reason = "FORMAT is the format of a timestamp")]
pub fn now() -> Timestamp {
    let text = jiff::Timestamp::now().strftime(FORMAT).to_string();
    Timestamp::try_from(text).expect("a time in V0's format")
}

/// Returns the seconds since the Unix epoch; 0 for an invalid calendar date.
pub fn epoch_seconds(timestamp: &Timestamp) -> f64 {
    parse_time(timestamp.as_str()).unwrap_or(0.0)
}

/// Parses a date, or a date and time, in ISO 8601. Returns the seconds since the Unix epoch.
/// Without an offset it is in UTC.
///
/// # Errors
/// A description of what is wrong with the text.
pub fn parse_time(text: &str) -> Result<f64, String> {
    let to_utc = |civil: jiff::civil::DateTime| civil.to_zoned(jiff::tz::TimeZone::UTC);
    let instant = text
        .parse()
        .or_else(|_: jiff::Error| Ok(to_utc(text.parse()?)?.timestamp()));
    let instant: jiff::Timestamp = instant.map_err(|error: jiff::Error| error.to_string())?;
    Ok(instant.as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{epoch_seconds, now, parse_time};

    #[test]
    fn now_is_parsed_as_the_current_time() {
        let before = jiff::Timestamp::now().as_duration().as_secs_f64();
        let read = epoch_seconds(&now());
        let after = jiff::Timestamp::now().as_duration().as_secs_f64();
        // The text is truncated to microseconds.
        assert!(
            before - 0.001 <= read && read <= after,
            "{before} {read} {after}"
        );
    }

    #[test]
    fn time_is_parsed_with_its_offset() {
        for text in [
            "2025-10-03",
            "2025-10-03T00:00:00",
            "2025-10-03 00:00:00Z",
            "2025-10-03T02:00:00.000+02:00",
        ] {
            assert_eq!(parse_time(text), Ok(1_759_449_600.0), "{text}");
        }
        for text in ["", "tomorrow", "2025-02-30", "2025-10-03T25:00:00"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
