//! Performs actions. Each runs in its own task, which survives a lost connection and produces
//! exactly one observation.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::sandbox_api::{ActionRequest, CommandEnvironment, SandboxAction};
use protocol::{ActionId, Observation, SessionName};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::activity::Activity;
use crate::files::Files;
use crate::ledger::{ActionRecord, Ledger, LedgerError, RunningAction, SpoolStore, StartedAction};
use crate::plugins::jupyter::{Cell, Jupyter};
use crate::sessions::Sessions;
use crate::timeouts::{sleep_until_timeout, timeout_from_secs};

/// Maximum number of concurrent file actions. Each may need a few times the size of the largest
/// file.
const MAX_FILE_ACTIONS: usize = 8;

/// An operation on files. The path is the folder that relative paths refer to.
type FileAction = Box<dyn FnOnce(&Files, &Path) -> Observation + Send>;

/// Performs actions. Clones share the state.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) ledger: Ledger,
    pub(crate) sessions: Sessions,
    pub(crate) files: Arc<Files>,
    jupyter: Jupyter,
    file_actions: Arc<Semaphore>,
    /// The tasks of the actions. They end with their action, or are cancelled when the server shuts
    /// down.
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

    /// Starts the action. Returns the existing one if the id is known.
    pub(crate) fn execute(
        &self,
        id: ActionId,
        mut request: ActionRequest,
    ) -> Result<Arc<ActionRecord>, LedgerError> {
        // A client that retries may no longer know the values.
        let environment = std::mem::take(&mut request.environment);
        match self.ledger.start(id.clone(), &request)? {
            StartedAction::Known(entry) => Ok(entry),
            StartedAction::New(running) => {
                let entry = running.entry();
                let (executor, active) = (self.clone(), self.activity.start());
                tracing::debug!(%id, "action started");
                self.tasks.spawn(async move {
                    let observation = executor.perform(&running, request, environment).await;
                    running.complete(observation);
                    tracing::debug!(%id, "action completed");
                    drop(active);
                });
                Ok(entry)
            }
        }
    }

    async fn perform(
        &self,
        running: &RunningAction,
        request: ActionRequest,
        environment: CommandEnvironment,
    ) -> Observation {
        let ActionRequest {
            action,
            timeout,
            session,
            ..
        } = request;
        let timeout = timeout.and_then(timeout_from_secs);
        let cancelled = running.cancellation();
        let action: FileAction = match action {
            SandboxAction::Run(run) => {
                let shell = match self.sessions.get(&session) {
                    Ok(shell) => shell,
                    Err(error) => return Observation::error(format!("{error}."), ""),
                };
                return shell
                    .run(
                        run,
                        environment,
                        timeout,
                        Box::new(running.output()),
                        cancelled,
                    )
                    .await;
            }
            SandboxAction::RunIpython(action) => {
                let folder = self.sessions.working_dir(&session);
                let cell = Cell {
                    action,
                    environment,
                    folder,
                    timeout,
                    cancel: cancelled,
                };
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
        Box::pin(self.run_file_action(&session, timeout, cancelled, action)).await
    }

    /// A system call on a file cannot be interrupted. After a cancellation or a timeout it is
    /// abandoned.
    async fn run_file_action(
        &self,
        session: &SessionName,
        timeout: Option<Duration>,
        cancelled: CancellationToken,
        action: FileAction,
    ) -> Observation {
        let performed = async {
            // The permit moves into the thread: an abandoned call still counts.
            let permit = Arc::clone(&self.file_actions).acquire_owned().await;
            let (files, working_dir) =
                (Arc::clone(&self.files), self.sessions.working_dir(session));
            let job = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                action(&files, &working_dir)
            });
            job.await.unwrap_or_else(|_| {
                Observation::error("The action server failed on this file.", "")
            })
        };
        tokio::select! {
            observation = performed => observation,
            () = cancelled.cancelled() => abandoned("was cancelled"),
            () = sleep_until_timeout(timeout) => abandoned("took longer than its timeout"),
        }
    }
}

/// Returns whether this server performs the action of this name. Other actions of V0 are performed
/// by the host.
pub(crate) fn is_performed(kind: &str) -> bool {
    matches!(kind, "run" | "run_ipython" | "read" | "write" | "edit")
}

fn abandoned(reason: &str) -> Observation {
    Observation::error(
        format!("The file action {reason}. Its effects may still complete."),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn performed_actions_are_those_that_the_wire_accepts() {
        for kind in protocol::Action::KINDS {
            let json = serde_json::json!({"action": kind, "args": {"command": "", "code": "", "path": "", "content": ""}});
            let is_read = serde_json::from_value::<ActionRequest>(json).is_ok();
            assert_eq!(is_read, is_performed(kind), "{kind}");
        }
    }
}
