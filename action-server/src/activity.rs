//! Detects whether the server is idle: no open connection and no running action.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Counts open connections and running actions. Clones share the counter.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    count: Arc<watch::Sender<usize>>,
}

/// Counts as active until it is dropped.
#[derive(Debug)]
pub(crate) struct ActivityGuard {
    count: Arc<watch::Sender<usize>>,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            count: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Activity {
    pub(crate) fn start(&self) -> ActivityGuard {
        // Notifies only about the first and the last one, because this runs for every action.
        self.count.send_if_modified(|count| {
            *count += 1;
            *count == 1
        });
        ActivityGuard {
            count: Arc::clone(&self.count),
        }
    }

    /// Completes once the server has been idle for `time`; never if there is none.
    pub(crate) async fn idle_for(&self, time: Option<Duration>) {
        let Some(time) = time else {
            return std::future::pending().await;
        };
        let mut count = self.count.subscribe();
        loop {
            // Cannot fail: `self` owns the sender.
            _ = count.wait_for(|count| *count == 0).await;
            tokio::select! {
                () = sleep(time) => return,
                _ = count.changed() => {}
            }
        }
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.count.send_if_modified(|count| {
            *count = count.saturating_sub(1);
            *count == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_restarts_with_every_activity() {
        let activity = Activity::default();
        let started = Instant::now();
        let idle = tokio::spawn({
            let activity = activity.clone();
            async move { activity.idle_for(Some(Duration::from_secs(10))).await }
        });
        sleep(Duration::from_secs(9)).await;
        let (one, two) = (activity.start(), activity.start());
        drop(one);
        sleep(Duration::from_secs(30)).await;
        drop(two);
        sleep(Duration::from_secs(5)).await;
        drop(activity.start());
        idle.await.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(9 + 30 + 5 + 10));
    }
}
