//! The delay between attempts to resume a broken response.

use std::time::Duration;

use engine::sandbox::SandboxError;
use tokio::time::sleep;

/// Maximum number of consecutive attempts without a new byte.
const MAX_FRUITLESS_ATTEMPTS: u32 = 8;

/// The delay after a break. Doubles with each attempt without a new byte.
const MIN_BACKOFF: Duration = Duration::from_millis(5);

pub(super) struct ResumeBackoff {
    /// The action or program.
    subject: String,
    fruitless_attempts: u32,
}

impl ResumeBackoff {
    pub(super) fn new(subject: String) -> Self {
        Self {
            subject,
            fruitless_attempts: 0,
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
        self.fruitless_attempts = if has_progressed {
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
