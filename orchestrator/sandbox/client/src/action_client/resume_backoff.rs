//! The delay between attempts to resume a broken response.

use std::time::Duration;

use engine::sandbox::SandboxError;
use tokio::time::{Instant, sleep};

/// Maximum number of consecutive attempts without a new byte.
const MAX_FRUITLESS_ATTEMPTS: u32 = 8;

/// Time after which a connection counts as stable. An action may be silent for hours.
const MIN_STABLE_TIME: Duration = Duration::from_secs(30);

/// The delay after a break. Doubles with each attempt without a new byte.
const MIN_BACKOFF: Duration = Duration::from_millis(5);

pub(super) struct ResumeBackoff {
    /// The action or program.
    subject: String,
    fruitless_attempts: u32,
    last_break: Instant,
}

impl ResumeBackoff {
    pub(super) fn new(subject: String) -> Self {
        Self {
            subject,
            fruitless_attempts: 0,
            last_break: Instant::now(),
        }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] after too many attempts without progress.
    pub(super) async fn wait(
        &mut self,
        has_progressed: bool,
        reason: &str,
    ) -> Result<(), SandboxError> {
        let is_recent = self.last_break.elapsed() < MIN_STABLE_TIME;
        self.last_break = Instant::now();
        self.fruitless_attempts = if has_progressed || !is_recent {
            0
        } else {
            self.fruitless_attempts + 1
        };
        if self.fruitless_attempts == MAX_FRUITLESS_ATTEMPTS {
            return Err(SandboxError::Lost {
                detail: format!(
                    "the response to {} broke off {MAX_FRUITLESS_ATTEMPTS} times in a row: {reason}",
                    self.subject
                ),
            });
        }
        sleep(MIN_BACKOFF * 2_u32.pow(self.fruitless_attempts)).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_breaks_in_a_row_end_an_action() {
        let mut backoff = ResumeBackoff::new("action c.1".into());
        for _ in 0..3 * MAX_FRUITLESS_ATTEMPTS {
            sleep(MIN_STABLE_TIME).await;
            backoff.wait(false, "cut").await.unwrap();
        }
        let mut attempts = 0;
        while backoff.wait(false, "cut").await.is_ok() {
            attempts += 1;
        }
        assert_eq!(attempts + 1, MAX_FRUITLESS_ATTEMPTS);
    }
}
