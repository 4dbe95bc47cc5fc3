//! A guard that removes what an unfinished start created.
//!
//! The removal also happens if the future of the start is dropped, because a task of the provider
//! performs it. Steps that cannot be interrupted (an engine creates a container even if the request
//! is dropped) are completed first.

use engine::sandbox::SandboxError;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Runs the removal when it is dropped, unless the start has finished.
pub struct UnfinishedStart {
    removal: Option<BoxFuture<'static, ()>>,
    removals: TaskTracker,
    steps: Steps,
}

/// Completes steps of a start even if their futures are dropped. The removal waits for them.
#[derive(Clone)]
pub struct Steps(TaskTracker);

impl Steps {
    /// Runs one step. It must have a timeout of its own.
    ///
    /// # Errors
    /// The step failed or panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        step: impl Future<Output = Result<T, SandboxError>> + Send + 'static,
    ) -> Result<T, SandboxError> {
        self.0
            .spawn(step)
            .await
            .unwrap_or_else(|panic| Err(SandboxError::host("run", "a step of a start", panic)))
    }
}

impl UnfinishedStart {
    /// Guards a start. The removal must have a timeout of its own.
    pub fn new(removals: &TaskTracker, removal: impl Future<Output = ()> + Send + 'static) -> Self {
        let steps = Steps(TaskTracker::new());
        let Steps(running) = steps.clone();
        let removal = async move {
            running.close();
            running.wait().await;
            removal.await;
        };
        Self {
            removal: Some(Box::pin(removal)),
            removals: removals.clone(),
            steps,
        }
    }

    /// Returns the steps that the removal waits for.
    pub fn steps(&self) -> Steps {
        self.steps.clone()
    }

    /// Returns the result of the start. After an error, waits for the removal first.
    ///
    /// # Errors
    /// The start failed.
    pub async fn finish<T>(mut self, started: Result<T, SandboxError>) -> Result<T, SandboxError> {
        let removal = self.removal.take();
        if started.is_err()
            && let Some(removal) = removal
        {
            // A task, which continues if this future is dropped. Its panic is already logged.
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
    async fn removal_runs_unless_the_start_finishes() {
        let (removals, log) = (TaskTracker::new(), Arc::new(Mutex::new(Vec::new())));
        let start = |name: &'static str| {
            let log = log.clone();
            UnfinishedStart::new(&removals, async move { log.lock().unwrap().push(name) })
        };
        start("finished").finish(Ok(())).await.unwrap();
        let lost = SandboxError::Lost {
            detail: String::new(),
        };
        start("failed").finish::<()>(Err(lost)).await.unwrap_err();
        drop(start("abandoned"));

        let in_step = start("abandoned in step");
        let step_log = log.clone();
        let steps = in_step.steps();
        let step = steps.run(async move {
            sleep(Duration::from_secs(1)).await;
            step_log.lock().unwrap().push("step");
            Ok(())
        });
        assert!(step.now_or_never().is_none());
        drop(in_step);

        removals.close();
        removals.wait().await;
        assert_eq!(
            *log.lock().unwrap(),
            ["failed", "abandoned", "step", "abandoned in step"]
        );
    }
}
