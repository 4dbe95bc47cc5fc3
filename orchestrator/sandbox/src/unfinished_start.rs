//! A start that has placed something and not yet handed it to anyone.
//!
//! Whatever ends it, an error or the caller who no longer waits, what was placed is removed: by a task that the
//! provider tracks, so that it happens also when the future of the start is dropped in the middle.

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Removes what was placed, unless told that the start has finished.
pub(crate) struct UnfinishedStart {
    removal: Option<BoxFuture<'static, ()>>,
    removals: TaskTracker,
}

impl UnfinishedStart {
    /// From now on `removal` runs unless the start finishes. It must bound itself.
    pub(crate) fn new(removals: &TaskTracker, removal: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { removal: Some(Box::pin(removal)), removals: removals.clone() }
    }

    /// Somebody has the sandbox now.
    pub(crate) fn finish(mut self) {
        self.removal = None;
    }

    /// Removes what was placed and waits until it is.
    pub(crate) async fn undo(mut self) {
        if let Some(removal) = self.removal.take() {
            // A task of its own: it goes on when nobody waits for this any more. Its panic would be logged already.
            let _ = self.removals.spawn(removal).await;
        }
    }
}

impl Drop for UnfinishedStart {
    fn drop(&mut self) {
        if let (Some(removal), Ok(runtime)) = (self.removal.take(), Handle::try_current()) {
            self.removals.spawn_on(removal, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_util::task::TaskTracker;

    use super::UnfinishedStart;

    #[tokio::test]
    async fn what_was_placed_is_removed_unless_the_start_finishes() {
        let (removals, removed) = (TaskTracker::new(), Arc::new(AtomicUsize::new(0)));
        let start = || {
            let removed = removed.clone();
            UnfinishedStart::new(&removals, async move {
                removed.fetch_add(1, Ordering::Relaxed);
            })
        };
        start().finish();
        start().undo().await;
        assert_eq!(removed.load(Ordering::Relaxed), 1);
        drop(start());
        removals.close();
        removals.wait().await;
        assert_eq!(removed.load(Ordering::Relaxed), 2);
    }
}
