//! Times in V0's shape. The only place of the engine that asks what time it is; the pure parts are told.

use protocol::Timestamp;

/// V0's shape with all six digits, so that texts sort as times do.
const SHAPE: &str = "%Y-%m-%dT%H:%M:%S%.6f";

/// The time now, in UTC.
#[expect(clippy::expect_used, reason = "SHAPE is the shape that a timestamp has")]
pub fn now() -> Timestamp {
    let text = jiff::Timestamp::now().strftime(SHAPE).to_string();
    Timestamp::try_from(text).expect("a time in V0's shape")
}

/// Seconds since the epoch; 0 for a time that the calendar does not have.
pub fn epoch_seconds(timestamp: &Timestamp) -> f64 {
    let civil: Result<jiff::civil::DateTime, _> = timestamp.as_str().parse();
    let instant = civil.and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC));
    instant.map_or(0.0, |instant| instant.timestamp().as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::{epoch_seconds, now};

    #[test]
    fn now_reads_back_as_now() {
        let before = jiff::Timestamp::now().as_duration().as_secs_f64();
        let read = epoch_seconds(&now());
        let after = jiff::Timestamp::now().as_duration().as_secs_f64();
        // The text has microseconds, and cuts what is finer.
        assert!(before - 0.001 <= read && read <= after, "{before} {read} {after}");
    }
}
