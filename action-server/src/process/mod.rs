//! Processes without a terminal: started by id, read by offset, written to, signalled, killed with all that came of them.
//!
//! A process outlives the request that started it. It belongs to a task ([`watch`]) whose parent is [`Processes`], and
//! ends at the latest with [`Processes::shut_down`]. What is known of it is held, as the ledger holds actions, until it is
//! acknowledged or its retention ends. Running processes do not keep an abandoned server from ending itself.

mod command;
mod entry;
mod error;
mod frames;
mod output_pipe;
mod stdin;
mod watch;

use std::sync::Arc;
use std::time::SystemTime;

use protocol::ProcessId;
use protocol::sandbox_api::{ProcessInfo, ProcessRequest, ProcessStdin};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub(crate) use command::Origin;
pub(crate) use entry::{Cursors, Next, Process};
pub(crate) use error::ProcessError;
pub(crate) use frames::frames;
pub(crate) use watch::exit_of;

use crate::ledger::{Refusal, Register, Registered, SpoolStore};
use crate::os::children;
use crate::os::process_tree::ProcessTree;
use entry::Started;
use watch::{Watched, watch};

/// The processes of this life of the server. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct Processes {
    register: Register<ProcessId, Process>,
    spools: SpoolStore,
    origin: Arc<Origin>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A start that was refused by the register, or by the system.
enum NotBegun {
    Refused(Refusal),
    Failed(ProcessError),
}

impl From<Refusal> for NotBegun {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Processes {
    pub(crate) fn new(origin: Origin, spools: SpoolStore) -> Self {
        Self {
            register: Register::default(),
            spools,
            origin: Arc::new(origin),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts a process, or finds it when this very request was seen before.
    pub(crate) fn start(
        &self,
        id: ProcessId,
        request: &ProcessRequest,
    ) -> Result<Arc<Process>, ProcessError> {
        let begun = self.register.begin(&id, request, || self.spawn(&id, request).map_err(NotBegun::Failed));
        match begun {
            Ok(Registered::New(process) | Registered::Known(process)) => Ok(process),
            Err(NotBegun::Refused(refusal)) => Err(refused(id, refusal)),
            Err(NotBegun::Failed(error)) => Err(error),
        }
    }

    fn spawn(&self, id: &ProcessId, request: &ProcessRequest) -> Result<Arc<Process>, ProcessError> {
        let mark = Uuid::now_v7().simple().to_string();
        let mut prepared = command::prepare(request, &self.origin, &mark)?;
        let name = request.argv.first().map_or("", String::as_str);
        let mut child =
            children::spawn(&mut prepared.command).map_err(|error| command::not_started(error, name))?;
        tracing::debug!(%id, pid = child.pid(), "a process begins");
        let started = Started {
            id: id.clone(),
            argv: request.argv.clone(),
            at_ms: now_ms(),
            tree: ProcessTree::new(child.pid(), mark),
            stdin: child.child.stdin.take(),
            kill: self.stop.child_token(),
        };
        let process = Arc::new(Process::new(started, &self.spools));
        if let Some(bytes) = prepared.stdin {
            self.feed(&process, bytes, request.stdin);
        }
        let watched = Watched {
            process: Arc::clone(&process),
            child,
            timeout: prepared.timeout,
            stop: self.stop.clone(),
        };
        let (register, id) = (self.register.clone(), id.clone());
        self.tasks.spawn(watch(watched, move |holds| {
            tracing::debug!(%id, "a process has ended");
            register.note_end(id, holds);
        }));
        Ok(process)
    }

    /// Writes what the process reads first. The task ends with the process.
    fn feed(&self, process: &Arc<Process>, bytes: Vec<u8>, stdin: ProcessStdin) {
        let Some(mut writer) = process.first_stdin_writer() else { return };
        self.tasks.spawn(async move {
            // One that does not read it all has its reasons.
            let _: Result<(), ProcessError> = writer.write(&bytes).await;
            if stdin == ProcessStdin::Null {
                writer.close();
            }
        });
    }

    pub(crate) fn find(&self, id: ProcessId) -> Result<Arc<Process>, ProcessError> {
        self.register.find(&id).map_err(|refusal| refused(id, refusal))
    }

    /// All that are held, the oldest first.
    pub(crate) fn list(&self) -> Vec<ProcessInfo> {
        let mut infos: Vec<_> = self.register.all().iter().map(|process| process.info()).collect();
        infos.sort_by(|one, two| (one.started_at_ms, &one.id).cmp(&(two.started_at_ms, &two.id)));
        infos
    }

    /// Forgets a process that has ended: its exit was heard. What it left behind goes on.
    pub(crate) fn acknowledge(&self, id: ProcessId) -> Result<(), ProcessError> {
        self.register.acknowledge(&id).map_err(|refusal| refused(id, refusal))
    }

    /// For the task that forgets.
    pub(crate) fn register(&self) -> Register<ProcessId, Process> {
        self.register.clone()
    }

    /// Kills all. Each still gets its exit.
    pub(crate) async fn shut_down(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn refused(id: ProcessId, refusal: Refusal) -> ProcessError {
    match refusal {
        Refusal::Conflict => ProcessError::Conflict(id),
        Refusal::Gone => ProcessError::Gone(id),
        Refusal::Unknown => ProcessError::Unknown(id),
        Refusal::StillRuns => ProcessError::StillRuns(id),
        Refusal::Busy(running) => ProcessError::Busy(running),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
