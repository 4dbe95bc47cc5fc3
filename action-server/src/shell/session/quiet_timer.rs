//! Tells that nothing was said for a while. Output and commands come far more often than that: the timer is moved only when
//! it fires, so that none of them pays for it.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer for all commands of a session.
#[derive(Default)]
pub(super) struct QuietTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl QuietTimer {
    /// Waits until `patience` has passed since `said_at`. Cancel-safe. A patience beyond the clock never ends.
    pub(super) async fn passed(&mut self, said_at: Instant, patience: Duration) {
        let Some(due) = said_at.checked_add(patience) else { return std::future::pending().await };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            // One that fires too early is moved; one that would fire too late is of a longer patience.
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
    async fn it_fires_when_it_is_quiet_and_not_before() {
        let mut timer = QuietTimer::default();
        let begin = Instant::now();
        for said_after in [0, 7, 8, 30] {
            let said_at = begin + Duration::from_secs(said_after);
            timer.passed(said_at, Duration::from_secs(10)).await;
            assert_eq!(begin.elapsed().as_secs(), said_after + 10);
        }
        timer.passed(begin, Duration::from_secs(1)).await;
        assert_eq!(begin.elapsed().as_secs(), 40);
    }
}
