//! Trying again: bounded, backing off, told before each wait.
//!
//! Knows nothing of what it tries. Ends with the first success, the first error that another try cannot mend, or the
//! last try's error. Dropping the future ends it during a try and during a wait.

use std::time::Duration;

use engine::llm::{LlmError, LlmProgress};
use tracing::Instrument as _;

/// A provider that asks for more than this is not waited for: the caller gets the error at once, with the time in it.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);

/// A wait grows by up to this part of itself, so that conversations which failed together do not come back together.
const JITTER: f64 = 0.25;

/// How often and when to try again, with V0's names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// `num_retries`: tries in all, as V0 counts them; 0 and 1 both mean a single one.
    pub num_retries: u32,
    /// `retry_multiplier`: the first wait in seconds; each is twice the one before.
    pub multiplier: f64,
    /// `retry_min_wait`: no backoff is shorter.
    pub min_wait: Duration,
    /// `retry_max_wait`: no backoff is longer. What a provider asks for may be, up to two minutes.
    pub max_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            num_retries: 5,
            multiplier: 8.0,
            min_wait: Duration::from_secs(8),
            max_wait: Duration::from_secs(64),
        }
    }
}

impl RetryPolicy {
    /// Calls `attempt` until it succeeds or it is not worth another try.
    pub(crate) async fn run<T, F>(
        &self,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
        mut attempt: impl FnMut() -> F + Send,
    ) -> Result<T, LlmError>
    where
        F: Future<Output = Result<T, LlmError>> + Send,
    {
        let attempts = self.num_retries.max(1);
        let mut attempt = |number| attempt().instrument(tracing::info_span!("attempt", number));
        for next in 2..=attempts {
            let error = match attempt(next - 1).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(after) = self.wait_before(next, &error) else {
                return Err(error);
            };
            tracing::warn!(attempt = next, attempts, ?after, kind = ?error.kind, %error, "retrying the model call");
            on_progress(LlmProgress::Retrying { attempt: next, attempts, after, error: error.kind });
            tokio::time::sleep(after).await;
        }
        attempt(attempts).await
    }

    /// How long to wait before try number `next`; nothing when there should be none.
    fn wait_before(&self, next: u32, error: &LlmError) -> Option<Duration> {
        if !error.kind.is_transient() {
            return None;
        }
        match error.retry_after.filter(|asked| !asked.is_zero()) {
            Some(asked) if asked > LONGEST_RETRY_AFTER.max(self.max_wait) => None,
            Some(asked) => Some(jittered(asked)),
            None => Some(jittered(self.backoff(next)).min(self.max_wait.max(self.min_wait))),
        }
    }

    fn backoff(&self, next: u32) -> Duration {
        let doublings = i32::try_from(next.saturating_sub(2)).unwrap_or(i32::MAX);
        let seconds = self.multiplier * 2f64.powi(doublings);
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or(self.max_wait);
        wait.min(self.max_wait).max(self.min_wait)
    }
}

fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + JITTER * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use engine::llm::LlmErrorKind;
    use tokio::time::Instant;

    use super::*;

    fn error(kind: LlmErrorKind, retry_after: Option<u64>) -> LlmError {
        LlmError { kind, detail: String::new(), retry_after: retry_after.map(Duration::from_secs) }
    }

    /// Plays `outcomes`; returns what came out, the seconds before each try after the first, and what was told.
    async fn play(
        policy: RetryPolicy,
        outcomes: Vec<Result<u32, LlmError>>,
    ) -> (Result<u32, LlmError>, Vec<u64>, Vec<LlmProgress>) {
        let told = Mutex::new(Vec::new());
        let mut outcomes = outcomes.into_iter();
        let mut tries = Vec::new();
        let result = policy
            .run(&|progress| told.lock().unwrap().push(progress), || {
                tries.push(Instant::now());
                std::future::ready(outcomes.next().unwrap())
            })
            .await;
        let waits = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        (result, waits, told.into_inner().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_longest() {
        let unavailable = || Err(error(LlmErrorKind::Unavailable, None));
        let (result, waits, told) =
            play(RetryPolicy::default(), (0..5).map(|_| unavailable()).collect()).await;
        assert_eq!(result.unwrap_err().kind, LlmErrorKind::Unavailable);
        let ranges = [8..=10, 16..=20, 32..=40, 64..=64];
        assert!(
            waits.len() == 4 && ranges.iter().zip(&waits).all(|(range, wait)| range.contains(wait)),
            "{waits:?}"
        );
        let LlmProgress::Retrying { attempt, attempts, error, .. } = &told[3] else { panic!("{told:?}") };
        assert_eq!((told.len(), *attempt, *attempts, *error), (4, 5, 5, LlmErrorKind::Unavailable));
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_it() {
        let (result, waits, _) =
            play(RetryPolicy::default(), vec![Err(error(LlmErrorKind::StreamCut, None)), Ok(7)]).await;
        assert_eq!((result.unwrap(), waits.len()), (7, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_try_cannot_mend_is_not_tried_again() {
        let (result, waits, told) =
            play(RetryPolicy::default(), vec![Err(error(LlmErrorKind::Authentication, None))]).await;
        assert_eq!(result.unwrap_err().kind, LlmErrorKind::Authentication);
        assert!(waits.is_empty() && told.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_provider_says_when() {
        let outcomes = vec![Err(error(LlmErrorKind::RateLimited, Some(100))), Ok(1)];
        let (_, waits, _) = play(RetryPolicy::default(), outcomes).await;
        assert!((100..=125).contains(&waits[0]), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_asks_for_an_hour_is_not_waited_for() {
        let (result, waits, _) =
            play(RetryPolicy::default(), vec![Err(error(LlmErrorKind::RateLimited, Some(3600)))]).await;
        assert_eq!(result.unwrap_err().retry_after, Some(Duration::from_secs(3600)));
        assert!(waits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn none_and_one_mean_a_single_try() {
        for num_retries in [0, 1] {
            let policy = RetryPolicy { num_retries, ..RetryPolicy::default() };
            let (result, waits, _) = play(policy, vec![Err(error(LlmErrorKind::Timeout, None))]).await;
            assert!(result.is_err() && waits.is_empty());
        }
    }

    #[test]
    fn odd_settings_do_not_overflow() {
        let policy = RetryPolicy { multiplier: 1e6, num_retries: u32::MAX, ..RetryPolicy::default() };
        assert_eq!(policy.backoff(u32::MAX), policy.max_wait);
    }
}
