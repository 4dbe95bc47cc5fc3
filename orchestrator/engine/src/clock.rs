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
    let civil: Result<jiff::civil::DateTime, _> = timestamp.as_str().parse();
    let instant = civil.and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC));
    instant.map_or(0.0, |instant| instant.timestamp().as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{epoch_seconds, now};

    #[test]
    fn now_is_parsed_as_the_current_time() {
        let before = jiff::Timestamp::now().as_duration().as_secs_f64();
        let read = epoch_seconds(&now());
        let after = jiff::Timestamp::now().as_duration().as_secs_f64();
        // The text is truncated to microseconds.
        assert!(before - 0.001 <= read && read <= after, "{before} {read} {after}");
    }
}
