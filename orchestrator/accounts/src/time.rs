//! The wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time, in seconds since the Unix epoch.
pub fn unix_now() -> u64 {
    since_epoch().as_secs()
}

/// Returns the current time, in milliseconds since the Unix epoch.
pub fn unix_now_ms() -> u64 {
    u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
