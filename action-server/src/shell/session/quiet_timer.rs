//! Detects that a command has no output for a while. The timer is only moved when it fires, because
//! there are many more outputs and commands than timeouts.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer for all commands of a session.
#[derive(Default)]
pub(super) struct QuietTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl QuietTimer {
    /// Waits until `timeout` has elapsed since `last_output_at`; forever if that overflows the
    /// clock. Cancel-safe.
    pub(super) async fn elapsed(&mut self, last_output_at: Instant, timeout: Duration) {
        let Some(due) = last_output_at.checked_add(timeout) else {
            return std::future::pending().await;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            // It may be too early, or too late because of an earlier, longer timeout.
            if sleep.is_elapsed() || sleep.deadline() > due {
                sleep.as_mut().reset(due);
            }
            sleep.as_mut().await;
            if due <= Instant::now() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timer_fires_after_the_timeout_without_output() {
        let mut timer = QuietTimer::default();
        let start = Instant::now();
        for output_after in [0, 7, 8, 30] {
            let last_output_at = start + Duration::from_secs(output_after);
            timer.elapsed(last_output_at, Duration::from_secs(10)).await;
            assert_eq!(start.elapsed().as_secs(), output_after + 10);
        }
        timer.elapsed(start, Duration::from_secs(1)).await;
        assert_eq!(start.elapsed().as_secs(), 40);
    }
}
