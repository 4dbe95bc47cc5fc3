//! A sandbox that responds from a script. Like a real sandbox, it never runs the same id twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use protocol::action::ReadAction;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{
    ActionRequest, FileKind, FileList, FileMode, FileStatus, SandboxAction,
};
use protocol::{ActionId, ConversationId, IdError, Observation, ObservationKind, SandboxId};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::sandbox::{
    ByteSource, OnOutput, OutputChunk, ProviderCapabilities, Sandbox, SandboxError, SandboxFiles,
    SandboxPausing, SandboxProcesses, SandboxProvider, SandboxSpec, SandboxStreams, SandboxSummary,
    ServerAccess, StartProgress, TransferKind,
};

/// The prefix of the ids of its sandboxes.
const PREFIX: &str = "scripted-";

/// Returns the result of an action.
type ActionScript = dyn Fn(&ActionRequest) -> ScriptedResult + Send + Sync;

/// The result of a scripted action.
#[derive(Debug, Clone)]
pub enum ScriptedResult {
    /// Completes immediately.
    Observation(Observation),
    /// Completes this long after its start, or when it is cancelled.
    After(Duration, Observation),
    /// Completes when it is cancelled.
    WhenCancelled(Observation),
}

/// Creates scripted sandboxes. Like a container, the machine outlives its clients.
#[derive(Clone)]
pub struct ScriptedProvider {
    script: Arc<ActionScript>,
    machines: Arc<Mutex<BTreeMap<SandboxId, Arc<Machine>>>>,
    boot_count: Arc<AtomicU64>,
    start_counts: StartCounts,
    has_outage: Arc<watch::Sender<bool>>,
    /// Paused sandboxes. `None` if sandboxes cannot be paused.
    paused: Option<Arc<Mutex<BTreeSet<SandboxId>>>>,
}

/// The number of starts of each action.
type StartCounts = Arc<Mutex<BTreeMap<ActionId, u32>>>;

/// One boot of a scripted action server.
struct Machine {
    lease: SandboxLeased,
    /// When each action was started.
    started_at: Mutex<BTreeMap<ActionId, Instant>>,
    start_counts: StartCounts,
    cancellations: Mutex<BTreeMap<ActionId, CancellationToken>>,
    lost: CancellationToken,
}

/// A client of a machine.
pub struct ScriptedSandbox {
    script: Arc<ActionScript>,
    machine: Arc<Machine>,
    has_outage: Arc<watch::Sender<bool>>,
}

impl ScriptedProvider {
    /// Creates a provider of sandboxes that respond with the result of `script`.
    pub fn new(script: impl Fn(&ActionRequest) -> ScriptedResult + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            machines: Arc::default(),
            boot_count: Arc::default(),
            start_counts: Arc::default(),
            has_outage: Arc::default(),
            paused: None,
        }
    }

    /// Lets its sandboxes be paused.
    #[must_use]
    pub fn with_pausing(self) -> Self {
        Self {
            paused: Some(Arc::default()),
            ..self
        }
    }

    /// Whether a sandbox is paused.
    pub fn is_paused(&self, sandbox: &SandboxId) -> bool {
        let paused = self.paused.as_ref();
        paused.is_some_and(|paused| lock(paused).contains(sandbox))
    }

    fn connect(&self, machine: Arc<Machine>) -> Box<dyn Sandbox> {
        Box::new(ScriptedSandbox {
            script: Arc::clone(&self.script),
            machine,
            has_outage: Arc::clone(&self.has_outage),
        })
    }

    /// Returns the id of a conversation's sandbox.
    ///
    /// # Errors
    /// The conversation's id is too long.
    pub fn sandbox_id(conversation: &ConversationId) -> Result<SandboxId, IdError> {
        SandboxId::try_from(format!("{PREFIX}{conversation}"))
    }

    /// Loses all sandboxes, as in a power failure.
    pub fn lose_all(&self) {
        for (_, machine) in std::mem::take(&mut *lock(&self.machines)) {
            machine.lost.cancel();
        }
    }

    /// Starts or ends an outage, in which no sandbox can be reached. All continue to run.
    pub fn set_outage(&self, has_outage: bool) {
        self.has_outage.send_replace(has_outage);
    }

    /// Returns the number of existing sandboxes.
    pub fn sandbox_count(&self) -> usize {
        lock(&self.machines).len()
    }

    /// Returns the number of sandboxes on which each action was started. More than 1 is an error.
    pub fn start_counts(&self) -> BTreeMap<ActionId, u32> {
        lock(&self.start_counts).clone()
    }
}

fn unreachable() -> SandboxError {
    SandboxError::Unreachable {
        detail: "the network is down".into(),
    }
}

impl Machine {
    /// Returns when the action was started. Starts it if it was not.
    fn start(&self, id: &ActionId) -> Instant {
        *lock(&self.started_at).entry(id.clone()).or_insert_with(|| {
            *lock(&self.start_counts).entry(id.clone()).or_default() += 1;
            Instant::now()
        })
    }

    fn cancellation(&self, id: &ActionId) -> CancellationToken {
        lock(&self.cancellations)
            .entry(id.clone())
            .or_default()
            .clone()
    }
}

#[async_trait]
impl SandboxProvider for ScriptedProvider {
    fn runtime(&self) -> &'static str {
        "scripted"
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        on_progress(StartProgress::Starting);
        let start_error = |error: IdError| SandboxError::Start {
            detail: error.to_string(),
            logs: String::new(),
        };
        let sandbox_id = Self::sandbox_id(&spec.conversation).map_err(start_error)?;
        let boot = self.boot_count.fetch_add(1, Ordering::Relaxed) + 1;
        let machine = Arc::new(Machine {
            lease: SandboxLeased {
                runtime: self.runtime().into(),
                sandbox_id: sandbox_id.clone(),
                boot_id: format!("boot-{boot}").try_into().map_err(start_error)?,
                working_dir: "/workspace".into(),
            },
            started_at: Mutex::default(),
            start_counts: Arc::clone(&self.start_counts),
            cancellations: Mutex::default(),
            lost: CancellationToken::new(),
        });
        lock(&self.machines).insert(sandbox_id, Arc::clone(&machine));
        Ok(self.connect(machine))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        if *self.has_outage.borrow() {
            return Err(unreachable());
        }
        if self.is_paused(&lease.sandbox_id) {
            return Err(SandboxError::Paused {
                detail: "it was not resumed".into(),
            });
        }
        let machine = lock(&self.machines).get(&lease.sandbox_id).cloned();
        match machine {
            Some(machine) if machine.lease == *lease => Ok(self.connect(machine)),
            _ => Err(SandboxError::Lost {
                detail: "the machine is gone".into(),
            }),
        }
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        match lock(&self.machines).get(sandbox).cloned() {
            Some(machine) => Ok(self.connect(machine)),
            None => Err(SandboxError::Lost {
                detail: "the machine is gone".into(),
            }),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let summary = |sandbox: &SandboxId| {
            let conversation = sandbox.as_str().strip_prefix(PREFIX);
            let conversation = conversation.and_then(|name| name.parse().ok());
            SandboxSummary::new(sandbox.clone(), conversation)
        };
        Ok(lock(&self.machines).keys().map(summary).collect())
    }

    fn capabilities(&self) -> ProviderCapabilities<'_> {
        let pausing = self.paused.as_ref().map(|_| self as &dyn SandboxPausing);
        ProviderCapabilities {
            pausing,
            ..ProviderCapabilities::default()
        }
    }

    async fn server_access(&self, _: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: self.runtime(),
            what: "lease a sandbox to clients",
        })
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Some(machine) = lock(&self.machines).remove(sandbox) {
            machine.lost.cancel();
        }
        Ok(())
    }

    /// Scripted starts are never abandoned.
    async fn wait_for_cleanup(&self) {}
}

#[async_trait]
impl SandboxPausing for ScriptedProvider {
    async fn pause(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Some(paused) = &self.paused {
            lock(paused).insert(sandbox.clone());
        }
        Ok(())
    }

    async fn resume(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Some(paused) = &self.paused {
            lock(paused).remove(sandbox);
        }
        Ok(())
    }
}

#[async_trait]
impl Sandbox for ScriptedSandbox {
    fn lease(&self) -> &SandboxLeased {
        &self.machine.lease
    }

    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        on_output: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError> {
        let started_at = self.machine.start(id);
        let cancellation = self.machine.cancellation(id);
        let completion = async {
            match (self.script)(request) {
                ScriptedResult::Observation(observation) => {
                    on_output(OutputChunk::Bytes {
                        offset: 0,
                        bytes: observation.content.as_bytes(),
                    });
                    observation
                }
                ScriptedResult::After(duration, observation) => {
                    // A timeout and a cancellation both complete it.
                    drop(
                        tokio::time::timeout_at(started_at + duration, cancellation.cancelled())
                            .await,
                    );
                    observation
                }
                ScriptedResult::WhenCancelled(observation) => {
                    cancellation.cancelled().await;
                    observation
                }
            }
        };
        let mut outage = self.has_outage.subscribe();
        tokio::select! {
            biased;
            _ = outage.wait_for(|has_outage| *has_outage) => Err(unreachable()),
            () = self.machine.lost.cancelled() => Err(SandboxError::Lost { detail: "the machine died".into() }),
            observation = completion => Ok(observation),
        }
    }

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        self.machine.cancellation(id).cancel();
        Ok(())
    }

    async fn check_connection(&self) -> Result<(), SandboxError> {
        match self.machine.lost.is_cancelled() {
            true => Err(SandboxError::Lost {
                detail: "the machine died".into(),
            }),
            false => Ok(()),
        }
    }

    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "scripted",
            what: "run programs",
        })
    }

    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "scripted",
            what: "open streams",
        })
    }

    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
        Ok(self)
    }
}

const NO_FILES: SandboxError = SandboxError::Unsupported {
    runtime: "scripted",
    what: "access files",
};

#[async_trait]
impl SandboxFiles for ScriptedSandbox {
    /// A file exists wherever the script returns one for a read action.
    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        let reading = ActionRequest::new(SandboxAction::Read(ReadAction::whole_file(path)), None);
        let ScriptedResult::Observation(Observation {
            content,
            kind: ObservationKind::Read(_),
            ..
        }) = (self.script)(&reading)
        else {
            return Ok(None);
        };
        Ok(Some(FileStatus {
            path: path.to_owned(),
            kind: FileKind::File,
            size: content.len() as u64,
            mode: FileMode::from_bits(0o644),
            uid: 0,
            gid: 0,
            modified_ns: 0,
            target: None,
        }))
    }

    async fn link_status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        self.status(path).await
    }

    async fn list(&self, _: &str) -> Result<FileList, SandboxError> {
        Err(NO_FILES)
    }

    async fn download(&self, _: &str, _: TransferKind) -> Result<ByteSource, SandboxError> {
        Err(NO_FILES)
    }

    async fn upload(
        &self,
        _: &str,
        _: TransferKind,
        _: Option<FileMode>,
        _: ByteSource,
    ) -> Result<(), SandboxError> {
        Err(NO_FILES)
    }

    async fn download_part(&self, _: &str, _: Range<u64>) -> Result<ByteSource, SandboxError> {
        Err(NO_FILES)
    }

    async fn make_folder(&self, _: &str) -> Result<(), SandboxError> {
        Err(NO_FILES)
    }

    async fn rename(&self, _: &str, _: &str, _: bool) -> Result<(), SandboxError> {
        Err(NO_FILES)
    }

    async fn remove(&self, _: &str, _: bool) -> Result<(), SandboxError> {
        Err(NO_FILES)
    }
}

/// Locks a mutex. No method awaits while it holds one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
