//! Processes without a terminal. They are started by id, their output is read by offset, and the
//! whole tree can be killed.
//!
//! A process outlives the request that started it. It belongs to a task ([`watch`]) of
//! [`Processes`], and ends at the latest with [`Processes::shut_down`]. Only readers that follow it
//! slow it down ([`readers`]). Its record is retained until it is acknowledged or expires, as for
//! actions. Running processes do not keep an idle server alive.

mod command;
mod entry;
mod error;
mod frames;
mod output_pipe;
mod readers;
mod stdin;
mod watch;

use std::sync::Arc;
use std::time::SystemTime;

use protocol::ProcessId;
use protocol::sandbox_api::{ProcessInfo, ProcessRequest, ProcessStdin};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use command::ProcessDefaults;
pub(crate) use entry::{Cursors, Process, ProcessProgress};
pub(crate) use error::ProcessError;
pub(crate) use frames::frames;
pub(crate) use watch::to_process_exit;

use crate::ledger::{Registration, Registry, RegistryError, SpoolStore};
use crate::os::children;
use crate::os::process_tree::ProcessTree;
use entry::NewProcess;
use watch::{WatchedProcess, watch};

/// The processes of the server. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    registry: Registry<ProcessId, Process>,
    spools: SpoolStore,
    defaults: Arc<ProcessDefaults>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A failed start.
enum StartFailure {
    Registry(RegistryError),
    Process(ProcessError),
}

impl From<RegistryError> for StartFailure {
    fn from(error: RegistryError) -> Self {
        Self::Registry(error)
    }
}

impl Processes {
    pub(crate) fn new(defaults: ProcessDefaults, spools: SpoolStore) -> Self {
        Self {
            registry: Registry::default(),
            spools,
            defaults: Arc::new(defaults),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts a process. Returns the existing one if the same request was received before.
    pub(crate) fn start(
        &self,
        id: ProcessId,
        request: &ProcessRequest,
    ) -> Result<Arc<Process>, ProcessError> {
        let spawn = || self.spawn(&id, request).map_err(StartFailure::Process);
        match self.registry.start(&id, request, spawn) {
            Ok(Registration::New(process) | Registration::Known(process)) => Ok(process),
            Err(StartFailure::Registry(error)) => Err(to_process_error(id, error)),
            Err(StartFailure::Process(error)) => Err(error),
        }
    }

    fn spawn(
        &self,
        id: &ProcessId,
        request: &ProcessRequest,
    ) -> Result<Arc<Process>, ProcessError> {
        let tree_id = Uuid::now_v7().simple().to_string();
        let mut prepared = command::prepare(request, &self.defaults, &tree_id)?;
        let name = request.argv.first().map_or("", String::as_str);
        let mut child = children::spawn(&mut prepared.command)
            .map_err(|error| command::start_error(error, name))?;
        tracing::debug!(%id, pid = child.pid(), "process started");
        let started = NewProcess {
            id: id.clone(),
            argv: request.argv.clone(),
            at_ms: now_ms(),
            tree: ProcessTree::new(child.pid(), tree_id),
            stdin: child.child.stdin.take(),
            kill: self.stop.child_token(),
        };
        let process = Arc::new(Process::new(started, &self.spools));
        if let Some(bytes) = prepared.stdin {
            self.write_initial_stdin(&process, bytes, request.stdin);
        }
        let watched = WatchedProcess {
            process: Arc::clone(&process),
            child,
            timeout: prepared.timeout,
            stop: self.stop.clone(),
        };
        let (registry, id) = (self.registry.clone(), id.clone());
        self.tasks.spawn(watch(watched, move |usage| {
            tracing::debug!(%id, "process exited");
            registry.set_ended(id, usage);
        }));
        Ok(process)
    }

    /// Writes the input of the request. The task ends with the process.
    fn write_initial_stdin(&self, process: &Arc<Process>, bytes: Vec<u8>, stdin: ProcessStdin) {
        let Some(mut writer) = process.first_stdin_writer() else {
            return;
        };
        self.tasks.spawn(async move {
            // A process does not have to read all of its input.
            let _: Result<(), ProcessError> = writer.write(&bytes).await;
            if stdin == ProcessStdin::Null {
                writer.close();
            }
        });
    }

    pub(crate) fn find(&self, id: ProcessId) -> Result<Arc<Process>, ProcessError> {
        self.registry
            .find(&id)
            .map_err(|error| to_process_error(id, error))
    }

    /// Lists all processes, oldest first.
    pub(crate) fn list(&self) -> Vec<ProcessInfo> {
        let mut infos: Vec<_> = self
            .registry
            .all()
            .iter()
            .map(|process| process.info())
            .collect();
        infos.sort_by(|one, two| (one.started_at_ms, &one.id).cmp(&(two.started_at_ms, &two.id)));
        infos
    }

    /// Forgets a process that has exited, after the client has received the exit. Its descendants
    /// are not killed.
    pub(crate) fn acknowledge(&self, id: ProcessId) -> Result<(), ProcessError> {
        self.registry
            .acknowledge(&id)
            .map_err(|error| to_process_error(id, error))
    }

    /// Returns the registry for the task that expires records.
    pub(crate) fn registry(&self) -> Registry<ProcessId, Process> {
        self.registry.clone()
    }

    /// Kills all processes. The exit of each is still reported.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn to_process_error(id: ProcessId, error: RegistryError) -> ProcessError {
    match error {
        RegistryError::Conflict => ProcessError::Conflict(id),
        RegistryError::Gone => ProcessError::Gone(id),
        RegistryError::Unknown => ProcessError::Unknown(id),
        RegistryError::StillRuns => ProcessError::StillRuns(id),
        RegistryError::Busy(running) => ProcessError::Busy(running),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
