//! Retries of requests to a runtime API, with backoff until a deadline, as in V0.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const MIN_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(8);

pub(super) struct RetryBackoff {
    deadline: Instant,
    delay: Duration,
    is_enabled: bool,
}

impl RetryBackoff {
    pub(super) fn new(deadline: Instant, is_enabled: bool) -> Self {
        Self {
            deadline,
            delay: MIN_BACKOFF,
            is_enabled,
        }
    }

    /// Waits before the next attempt, at least for `retry_after`. Reports the delay first. Returns
    /// false if there are no more attempts.
    pub(super) async fn wait(
        &mut self,
        retry_after: Option<Duration>,
        on_retry: impl FnOnce(Duration),
    ) -> bool {
        let delay = self
            .delay
            .max(retry_after.unwrap_or_default().min(MAX_BACKOFF));
        let next = Instant::now() + delay;
        self.delay = MAX_BACKOFF.min(self.delay * 2);
        let is_in_time = self.is_enabled && next < self.deadline;
        if is_in_time {
            on_retry(delay);
            sleep_until(next).await;
        }
        is_in_time
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::RetryBackoff;

    #[tokio::test(start_paused = true)]
    async fn delays_double_respect_retry_after_and_end_at_the_deadline() {
        let started = Instant::now();
        let mut backoff = RetryBackoff::new(started + Duration::from_secs(10), true);
        let mut waited = Vec::new();
        let mut reported = Vec::new();
        let mut report = |delay: Duration| reported.push(delay.as_millis());
        while backoff
            .wait(
                (waited.len() == 1).then_some(Duration::from_secs(3)),
                &mut report,
            )
            .await
        {
            waited.push(started.elapsed().as_millis());
        }
        assert_eq!(
            (waited, reported),
            (vec![250, 3250, 4250, 6250], vec![250, 3000, 1000, 2000])
        );
        let mut disabled = RetryBackoff::new(started + Duration::from_secs(99), false);
        assert!(!disabled.wait(None, |_| panic!("there is no retry")).await);
    }
}
