//! A start that has placed something and not yet handed it to anyone.
//!
//! Whatever ends it, an error or the caller who no longer waits, what was placed is removed: by a task that the
//! provider tracks, so that it happens also when the future of the start is dropped in the middle. Steps that cannot
//! be taken back half-way (an engine creates a container whether or not somebody waits) run to their end first.

use engine::sandbox::SandboxError;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Removes what was placed, unless told that the start has finished.
pub(crate) struct UnfinishedStart {
    removal: Option<BoxFuture<'static, ()>>,
    removals: TaskTracker,
    steps: Steps,
}

/// Takes steps of a start to their end, also when the caller no longer waits; a removal waits for them.
#[derive(Clone)]
pub(crate) struct Steps(TaskTracker);

impl Steps {
    /// Takes one step. It must bound itself.
    pub(crate) async fn take<T: Send + 'static>(
        &self,
        step: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        self.0.spawn(step).await.unwrap_or_else(|panic| {
            Err(SandboxError::Host { doing: "taking a step of a start".into(), source: panic.into() })
        })
    }
}

impl UnfinishedStart {
    /// From now on `removal` runs unless the start finishes. It must bound itself.
    pub(crate) fn new(removals: &TaskTracker, removal: impl Future<Output = ()> + Send + 'static) -> Self {
        let steps = Steps(TaskTracker::new());
        let Steps(taken) = steps.clone();
        let removal = async move {
            taken.close();
            taken.wait().await;
            removal.await;
        };
        Self { removal: Some(Box::pin(removal)), removals: removals.clone(), steps }
    }

    /// What takes the steps of this start.
    pub(crate) fn steps(&self) -> Steps {
        self.steps.clone()
    }

    /// Hands over what the start came to: a sandbox that somebody has now, or an error once all of it is removed.
    pub(crate) async fn end<T>(mut self, started: Result<T, SandboxError>) -> Result<T, SandboxError> {
        let removal = self.removal.take();
        if started.is_err()
            && let Some(removal) = removal
        {
            // A task of its own: it goes on when nobody waits for this any more. A panic in it is logged by itself.
            let _ = self.removals.spawn(removal).await;
        }
        started
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
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use engine::sandbox::SandboxError;
    use futures_util::FutureExt;
    use tokio::time::sleep;
    use tokio_util::task::TaskTracker;

    use super::UnfinishedStart;

    #[tokio::test(start_paused = true)]
    async fn what_was_placed_is_removed_unless_the_start_finishes() {
        let (removals, log) = (TaskTracker::new(), Arc::new(Mutex::new(Vec::new())));
        let start = |name: &'static str| {
            let log = log.clone();
            UnfinishedStart::new(&removals, async move { log.lock().unwrap().push(name) })
        };
        start("finished").end(Ok(())).await.unwrap();
        let lost = SandboxError::Lost { detail: String::new() };
        start("failed").end::<()>(Err(lost)).await.unwrap_err();
        drop(start("abandoned"));

        let in_a_step = start("abandoned in a step");
        let stepping = log.clone();
        let steps = in_a_step.steps();
        let step = steps.take(async move {
            sleep(Duration::from_secs(1)).await;
            stepping.lock().unwrap().push("step");
            Ok(())
        });
        assert!(step.now_or_never().is_none());
        drop(in_a_step);

        removals.close();
        removals.wait().await;
        assert_eq!(*log.lock().unwrap(), ["failed", "abandoned", "step", "abandoned in a step"]);
    }
}
