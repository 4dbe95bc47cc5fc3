//! Retries with exponential backoff.
//!
//! The result is the first success, the first error that is not transient, or the error of the last
//! attempt. Dropping the future cancels the attempt or the delay.

use std::time::Duration;

use engine::llm::{LlmError, LlmErrorKind, LlmProgress};
use tokio::time::Instant;
use tracing::Instrument as _;

/// Maximum delay that a provider can request. A longer one is returned to the caller as an error.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Maximum part of a delay that is added to it, so that conversations that fail together do not
/// retry together.
const JITTER: f64 = 0.25;

/// When and how often to retry, with V0's names and defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// `num_retries`: maximum number of attempts, as in V0; 0 and 1 both allow one.
    pub num_retries: u32,
    /// `retry_multiplier`: the first delay in seconds. Each further delay is doubled.
    pub multiplier: f64,
    /// `retry_min_wait`: minimum delay.
    pub min_wait: Duration,
    /// `retry_max_wait`: maximum delay. A provider can request a longer one, of up to two minutes.
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
    /// Calls `attempt` until it succeeds or a retry is pointless.
    pub(crate) async fn run<T, F>(
        &self,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
        mut attempt: impl FnMut() -> F + Send,
    ) -> Result<T, LlmError>
    where
        F: Future<Output = Result<T, LlmError>> + Send,
    {
        let attempts = self.num_retries.max(1);
        let started = Instant::now();
        let mut attempt = |number| attempt().instrument(tracing::info_span!("attempt", number));
        let mut was_malformed = false;
        for next in 2..=attempts {
            let error = match attempt(next - 1).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            // The second one in a row: the address is not the API of a model.
            let is_malformed = error.kind == LlmErrorKind::Malformed;
            let Some(after) = self
                .delay_before(next, &error)
                .filter(|_| !(is_malformed && was_malformed))
            else {
                return Err(after_attempts(error, next - 1, started));
            };
            was_malformed = is_malformed;
            tracing::warn!(attempt = next, attempts, ?after, kind = ?error.kind, %error, "retrying the model call");
            on_progress(LlmProgress::Retrying {
                attempt: next,
                attempts,
                after,
                error,
            });
            tokio::time::sleep(after).await;
        }
        let last = attempt(attempts).await;
        last.map_err(|error| after_attempts(error, attempts, started))
    }

    /// Returns the delay before attempt `next`. `None` if there must be no retry.
    fn delay_before(&self, next: u32, error: &LlmError) -> Option<Duration> {
        if !error.kind.is_transient() {
            return None;
        }
        match error.retry_after.filter(|requested| !requested.is_zero()) {
            Some(requested) if requested > MAX_RETRY_AFTER.max(self.max_wait) => None,
            Some(requested) => Some(add_jitter(requested)),
            None => Some(add_jitter(self.backoff(next)).min(self.max_wait.max(self.min_wait))),
        }
    }

    fn backoff(&self, next: u32) -> Duration {
        let doublings = i32::try_from(next.saturating_sub(2)).unwrap_or(i32::MAX);
        let seconds = self.multiplier * 2f64.powi(doublings);
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(self.max_wait);
        delay.min(self.max_wait).max(self.min_wait)
    }
}

/// Adds the number of attempts to the error of the last one.
fn after_attempts(mut error: LlmError, attempts: u32, started: Instant) -> LlmError {
    if attempts > 1 {
        let seconds = started.elapsed().as_secs();
        error
            .detail
            .push_str(&format!("; tried {attempts} times in {seconds} s"));
    }
    error
}

fn add_jitter(delay: Duration) -> Duration {
    delay.mul_f64(1.0 + JITTER * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn error(kind: LlmErrorKind, retry_after: Option<u64>) -> LlmError {
        LlmError {
            kind,
            detail: String::new(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    /// Runs attempts with these results. Returns the result, the delays in seconds, and the
    /// reported progress.
    async fn run(
        policy: RetryPolicy,
        results: Vec<Result<u32, LlmError>>,
    ) -> (Result<u32, LlmError>, Vec<u64>, Vec<LlmProgress>) {
        let progress = Mutex::new(Vec::new());
        let mut results = results.into_iter();
        let mut attempts = Vec::new();
        let result = policy
            .run(&|report| progress.lock().unwrap().push(report), || {
                attempts.push(Instant::now());
                std::future::ready(results.next().unwrap())
            })
            .await;
        let delays = attempts
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs())
            .collect();
        (result, delays, progress.into_inner().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_maximum() {
        let unavailable = || Err(error(LlmErrorKind::Unavailable, None));
        let (result, delays, progress) = run(
            RetryPolicy::default(),
            (0..5).map(|_| unavailable()).collect(),
        )
        .await;
        let last = result.unwrap_err();
        assert_eq!(last.kind, LlmErrorKind::Unavailable);
        assert!(
            last.detail.starts_with("; tried 5 times in 1"),
            "{}",
            last.detail
        );
        let ranges = [8..=10, 16..=20, 32..=40, 64..=64];
        assert!(
            delays.len() == 4
                && ranges
                    .iter()
                    .zip(&delays)
                    .all(|(range, delay)| range.contains(delay)),
            "{delays:?}"
        );
        let LlmProgress::Retrying {
            attempt,
            attempts,
            error,
            ..
        } = &progress[3]
        else {
            panic!("{progress:?}")
        };
        assert_eq!(
            (progress.len(), *attempt, *attempts, error.kind),
            (4, 5, 5, LlmErrorKind::Unavailable)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn success_ends_the_retries() {
        let (result, delays, _) = run(
            RetryPolicy::default(),
            vec![Err(error(LlmErrorKind::StreamCut, None)), Ok(7)],
        )
        .await;
        assert_eq!((result.unwrap(), delays.len()), (7, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn malformed_response_is_retried_once() {
        let malformed = || Err(error(LlmErrorKind::Malformed, None));
        let (result, delays, _) = run(
            RetryPolicy::default(),
            (0..2).map(|_| malformed()).collect(),
        )
        .await;
        assert_eq!(
            (result.unwrap_err().kind, delays.len()),
            (LlmErrorKind::Malformed, 1)
        );
        let between = vec![
            malformed(),
            Err(error(LlmErrorKind::Connection, None)),
            malformed(),
            Ok(1),
        ];
        assert_eq!(run(RetryPolicy::default(), between).await.0, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_error_is_not_retried() {
        let (result, delays, progress) = run(
            RetryPolicy::default(),
            vec![Err(error(LlmErrorKind::Authentication, None))],
        )
        .await;
        assert_eq!(result.unwrap_err().kind, LlmErrorKind::Authentication);
        assert!(delays.is_empty() && progress.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn delay_is_as_the_provider_requests() {
        let results = vec![Err(error(LlmErrorKind::RateLimited, Some(100))), Ok(1)];
        let (_, delays, _) = run(RetryPolicy::default(), results).await;
        assert!((100..=125).contains(&delays[0]), "{delays:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn long_requested_delay_is_an_error() {
        let (result, delays, _) = run(
            RetryPolicy::default(),
            vec![Err(error(LlmErrorKind::RateLimited, Some(3600)))],
        )
        .await;
        assert_eq!(
            result.unwrap_err().retry_after,
            Some(Duration::from_secs(3600))
        );
        assert!(delays.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn zero_and_one_retries_mean_a_single_attempt() {
        for num_retries in [0, 1] {
            let policy = RetryPolicy {
                num_retries,
                ..RetryPolicy::default()
            };
            let (result, delays, _) =
                run(policy, vec![Err(error(LlmErrorKind::Timeout, None))]).await;
            assert!(result.is_err() && delays.is_empty());
        }
    }

    #[test]
    fn extreme_settings_do_not_overflow() {
        let policy = RetryPolicy {
            multiplier: 1e6,
            num_retries: u32::MAX,
            ..RetryPolicy::default()
        };
        assert_eq!(policy.backoff(u32::MAX), policy.max_wait);
    }
}
