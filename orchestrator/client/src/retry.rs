//! Delays between attempts.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Attempts for a time after the first failure.
pub(crate) struct Retry {
    timeout: Duration,
    /// `None` before the first failure.
    deadline: Option<Instant>,
    delay: Duration,
}

impl Retry {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            deadline: None,
            delay: MIN_DELAY,
        }
    }

    /// Waits before the next attempt. Returns whether there is one.
    pub(crate) async fn wait(&mut self) -> bool {
        // Clients that have lost the same server come back at different times.
        let delay = self.delay.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.delay = (self.delay * 2).min(MAX_DELAY);
        let deadline = *self.deadline.get_or_insert(Instant::now() + self.timeout);
        if Instant::now() + delay > deadline {
            return false;
        }
        sleep(delay).await;
        true
    }
}
