//! Timeouts as requests give them: optional numbers of seconds.

use std::time::Duration;

/// Ten years. Longer timeouts are cut to it, so that adding one to the clock cannot overflow.
const MAX_TIMEOUT_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;

/// Converts a number of seconds. `None` if it is negative or not a number.
pub(crate) fn timeout_from_secs(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(MAX_TIMEOUT_SECONDS)).ok()
}

/// Completes when the timeout has elapsed; never if there is none.
pub(crate) async fn sleep_until_timeout(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_converted_when_it_is_a_duration() {
        assert_eq!(timeout_from_secs(1.5), Some(Duration::from_millis(1500)));
        assert_eq!(timeout_from_secs(-1.0), None);
        assert!(timeout_from_secs(1e300).is_some());
    }
}
