//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time, in seconds since the Unix epoch.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
