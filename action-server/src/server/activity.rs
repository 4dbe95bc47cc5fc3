//! Whether anybody needs the server: connections that are open, actions that run.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Counts what is active. Cloning shares the count.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    count: Arc<watch::Sender<usize>>,
}

/// Something is active as long as this lives.
#[derive(Debug)]
pub(crate) struct Active {
    count: Arc<watch::Sender<usize>>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { count: Arc::new(watch::Sender::new(0)) }
    }
}

impl Activity {
    pub(crate) fn begin(&self) -> Active {
        // Only the first and the last are told: this is done for every action.
        self.count.send_if_modified(|count| {
            *count += 1;
            *count == 1
        });
        Active { count: Arc::clone(&self.count) }
    }

    /// Returns when nothing was active for that long; never without a time.
    pub(crate) async fn idle_for(&self, time: Option<Duration>) {
        let Some(time) = time else { return std::future::pending().await };
        let mut count = self.count.subscribe();
        loop {
            // Neither can fail: the sender is ours.
            _ = count.wait_for(|count| *count == 0).await;
            tokio::select! {
                () = sleep(time) => return,
                _ = count.changed() => {}
            }
        }
    }
}

impl Drop for Active {
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
    async fn idle_begins_anew_with_every_activity() {
        let activity = Activity::default();
        let begun = Instant::now();
        let idle = tokio::spawn({
            let activity = activity.clone();
            async move { activity.idle_for(Some(Duration::from_secs(10))).await }
        });
        sleep(Duration::from_secs(9)).await;
        let (one, two) = (activity.begin(), activity.begin());
        drop(one);
        sleep(Duration::from_secs(30)).await;
        drop(two);
        sleep(Duration::from_secs(5)).await;
        drop(activity.begin());
        idle.await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(9 + 30 + 5 + 10));
    }
}
