//! A value that any client may request, and that is measured at most once per interval, by one
//! request at a time.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last measurement of a value.
pub(crate) struct Cached<T> {
    max_age: Duration,
    /// An asynchronous mutex, because the others wait for the request that measures.
    last: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Cached<T> {
    pub(crate) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            last: Mutex::new(None),
        }
    }

    /// Returns the last measurement, or measures again if it is too old.
    pub(crate) async fn get(&self, measure: impl Future<Output = T>) -> T {
        let mut last = self.last.lock().await;
        if let Some((measured_at, value)) = &*last
            && measured_at.elapsed() < self.max_age
        {
            return value.clone();
        }
        let value = measure.await;
        *last = Some((Instant::now(), value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn value_is_measured_once_per_interval() {
        let cached = Cached::new(Duration::from_secs(1));
        assert_eq!(cached.get(async { 1 }).await, 1);
        assert_eq!(cached.get(async { 2 }).await, 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cached.get(async { 3 }).await, 3);
    }
}
