//! When a request to a runtime API is sent again: as V0 does it, with growing pauses until the time is over.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// How long something is tried.
pub(super) struct Retries {
    deadline: Instant,
    pause: Duration,
    are_on: bool,
}

impl Retries {
    /// Until `deadline`; not at all when they are switched off.
    pub(super) fn until(deadline: Instant, are_on: bool) -> Self {
        Self { deadline, pause: FIRST_PAUSE, are_on }
    }

    /// Waits before the next attempt, at least as long as the service `asked` for; false: there is none any more.
    pub(super) async fn wait(&mut self, asked: Option<Duration>) -> bool {
        let next = Instant::now() + self.pause.max(asked.unwrap_or_default().min(LONGEST_PAUSE));
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
        let is_in_time = self.are_on && next < self.deadline;
        if is_in_time {
            sleep_until(next).await;
        }
        is_in_time
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Retries;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_are_as_long_as_asked_for_and_end_in_time() {
        let begun = Instant::now();
        let mut retries = Retries::until(begun + Duration::from_secs(10), true);
        let mut waited = Vec::new();
        while retries.wait((waited.len() == 1).then_some(Duration::from_secs(3))).await {
            waited.push(begun.elapsed().as_millis());
        }
        assert_eq!(waited, [250, 3250, 4250, 6250]);
        assert!(!Retries::until(begun + Duration::from_secs(99), false).wait(None).await);
    }
}
