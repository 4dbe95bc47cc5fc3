//! Performs actions: each in a task of its own that no lost connection ends, with exactly one observation.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::sandbox_api::{ActionRequest, CommandEnvironment, SandboxAction};
use protocol::{ActionId, Observation, SessionName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::files::Files;
use crate::ledger::{Begun, Entry, Ledger, LedgerError, Running, SpoolStore};
use crate::plugins::jupyter::{Cell, Jupyter};
use crate::server::Activity;
use crate::sessions::Sessions;

/// File actions at once: each may hold a few times the largest file, and a disk serves no more in parallel.
const MAX_FILE_ACTIONS: usize = 8;

/// Longer timeouts than ten years are that long: adding them to the clock must not overflow.
const MAX_TIMEOUT_SECONDS: f64 = 10.0 * 365.0 * 86_400.0;

/// What is done with files, in the folder where relative paths begin.
type FileAction = Box<dyn FnOnce(&Files, &Path) -> Observation + Send>;

/// What performs actions. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) ledger: Ledger,
    pub(crate) sessions: Sessions,
    pub(crate) files: Arc<Files>,
    jupyter: Jupyter,
    file_actions: Arc<Semaphore>,
    /// The parent of the actions' tasks; they end with their action, or are cancelled at the server's end.
    tasks: TaskTracker,
    activity: Activity,
}

impl Executor {
    pub(crate) fn new(
        sessions: Sessions,
        files: Files,
        jupyter: Jupyter,
        spools: SpoolStore,
        tasks: TaskTracker,
        activity: Activity,
    ) -> Self {
        Self {
            ledger: Ledger::new(spools),
            sessions,
            files: Arc::new(files),
            jupyter,
            file_actions: Arc::new(Semaphore::new(MAX_FILE_ACTIONS)),
            tasks,
            activity,
        }
    }

    /// Begins the action, or finds it when it was begun before.
    pub(crate) fn execute(
        &self,
        id: ActionId,
        mut request: ActionRequest,
    ) -> Result<Arc<Entry>, LedgerError> {
        // Whoever asks again may not know the values any more.
        let environment = std::mem::take(&mut request.environment);
        match self.ledger.begin(id.clone(), &request)? {
            Begun::Known(entry) => Ok(entry),
            Begun::New(running) => {
                let entry = running.entry();
                let (executor, active) = (self.clone(), self.activity.begin());
                tracing::debug!(%id, "an action begins");
                self.tasks.spawn(async move {
                    let observation = executor.perform(&running, request, environment).await;
                    running.end(observation);
                    tracing::debug!(%id, "an action has ended");
                    drop(active);
                });
                Ok(entry)
            }
        }
    }

    async fn perform(
        &self,
        running: &Running,
        request: ActionRequest,
        environment: CommandEnvironment,
    ) -> Observation {
        let ActionRequest { action, timeout, session, .. } = request;
        let timeout = timeout.and_then(duration);
        let cancelled = running.cancellation();
        let action: FileAction = match action {
            SandboxAction::Run(run) => {
                let shell = match self.sessions.get(&session) {
                    Ok(shell) => shell,
                    Err(error) => return Observation::error(format!("{error}."), ""),
                };
                return shell.run(run, environment, timeout, Box::new(running.output()), cancelled).await;
            }
            SandboxAction::RunIpython(action) => {
                let folder = self.sessions.working_dir(&session);
                let cell = Cell { action, environment, folder, timeout, cancel: cancelled };
                return Box::pin(self.jupyter.run(cell, Box::new(running.output()))).await;
            }
            SandboxAction::Browse(_) | SandboxAction::BrowseInteractive(_) => {
                let problem = "The browser is driven by the host, not by this action server.";
                return Observation::error(problem, "");
            }
            SandboxAction::Read(read) => Box::new(move |files, dir| files.read(&read, dir)),
            SandboxAction::Write(write) => Box::new(move |files, dir| files.write(&write, dir)),
            SandboxAction::Edit(edit) => Box::new(move |files, dir| files.edit(&edit, dir)),
        };
        Box::pin(self.on_files(&session, timeout, cancelled, action)).await
    }

    /// A system call on a file cannot be taken back, so what is cancelled or takes too long is left to itself.
    async fn on_files(
        &self,
        session: &SessionName,
        timeout: Option<Duration>,
        cancelled: CancellationToken,
        action: FileAction,
    ) -> Observation {
        let performed = async {
            // Moved into the thread: what is left to itself still counts.
            let permit = Arc::clone(&self.file_actions).acquire_owned().await;
            let (files, working_dir) = (Arc::clone(&self.files), self.sessions.working_dir(session));
            let job = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                action(&files, &working_dir)
            });
            job.await.unwrap_or_else(|_| Observation::error("The action server failed on this file.", ""))
        };
        tokio::select! {
            observation = performed => observation,
            () = cancelled.cancelled() => left_alone("was cancelled"),
            () = passed(timeout) => left_alone("took longer than its timeout"),
        }
    }
}

/// Whether a sandbox performs the action of this name; those of V0 that it does not are another part's.
pub(crate) fn is_performed(kind: &str) -> bool {
    matches!(kind, "run" | "run_ipython" | "read" | "write" | "edit")
}

/// Nothing for a timeout that is no time; the API refuses those.
pub(crate) fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(MAX_TIMEOUT_SECONDS)).ok()
}

fn left_alone(why: &str) -> Observation {
    Observation::error(format!("The file action {why}. What it has begun may still complete."), "")
}

/// Ends when the time is over; never without one.
pub(crate) async fn passed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_times() {
        assert_eq!(duration(1.5), Some(Duration::from_millis(1500)));
        assert_eq!(duration(-1.0), None);
        assert!(duration(1e300).is_some());
    }

    #[test]
    fn the_names_of_what_is_performed_are_the_wire_s() {
        for kind in protocol::Action::KINDS {
            let json = serde_json::json!({"action": kind, "args": {"command": "", "code": "", "path": "", "content": ""}});
            let is_read = serde_json::from_value::<ActionRequest>(json).is_ok();
            assert_eq!(is_read, is_performed(kind), "{kind}");
        }
    }
}
