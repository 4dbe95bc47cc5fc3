//! A sandbox that answers from a script and keeps a real sandbox's word: the same id never runs twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use protocol::action::ReadAction;
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{ActionRequest, FileKind, FileMode, FileStatus, SandboxAction};
use protocol::{ActionId, ConversationId, IdError, Observation, ObservationKind, SandboxId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sandbox::{
    Lifetime, OnOutput, OutputChunk, Sandbox, SandboxError, SandboxProvider, SandboxSpec, SandboxState,
    SandboxSummary, StartProgress,
};

/// What its sandboxes' ids begin with.
const PREFIX: &str = "scripted-";

/// What an action's run comes to.
type Script = dyn Fn(&ActionRequest) -> ScriptedResult + Send + Sync;

/// How a scripted action ends.
#[derive(Debug, Clone)]
pub enum ScriptedResult {
    /// At once, with this.
    Observation(Observation),
    /// So long after it was begun, or when it is cancelled, with this.
    After(Duration, Observation),
    /// When it is cancelled, with this.
    WhenCancelled(Observation),
}

/// Places scripted sandboxes; the "machine" survives the provider's users, as a container does.
#[derive(Clone)]
pub struct ScriptedProvider {
    script: Arc<Script>,
    machines: Arc<Mutex<BTreeMap<SandboxId, Arc<Machine>>>>,
    placed: Arc<Mutex<u64>>,
    runs: Runs,
}

/// How often each action was begun.
type Runs = Arc<Mutex<BTreeMap<ActionId, u32>>>;

/// One life of a scripted server.
struct Machine {
    lease: SandboxLeased,
    /// When each action was begun here.
    begun: Mutex<BTreeMap<ActionId, Instant>>,
    runs: Runs,
    cancelled: Mutex<Vec<ActionId>>,
    changed: Notify,
    lost: tokio_util::sync::CancellationToken,
}

/// A connection to a machine.
pub struct ScriptedSandbox {
    script: Arc<Script>,
    machine: Arc<Machine>,
}

impl ScriptedProvider {
    /// Sandboxes that answer each action with what the script says.
    pub fn new(script: impl Fn(&ActionRequest) -> ScriptedResult + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            machines: Arc::default(),
            placed: Arc::default(),
            runs: Arc::default(),
        }
    }

    /// The id that the sandbox of a conversation gets.
    ///
    /// # Errors
    /// When the conversation's id leaves no room for it.
    pub fn sandbox_id(conversation: &ConversationId) -> Result<SandboxId, IdError> {
        SandboxId::try_from(format!("{PREFIX}{conversation}"))
    }

    /// The machines' sandboxes end, as by a power cut.
    pub fn lose_all(&self) {
        for (_, machine) in std::mem::take(&mut *lock(&self.machines)) {
            machine.lost.cancel();
        }
    }

    /// How many sandboxes are placed now.
    pub fn placed_now(&self) -> usize {
        lock(&self.machines).len()
    }

    /// On how many sandboxes, of all there were, each action was begun: 1, or something is wrong.
    pub fn runs(&self) -> BTreeMap<ActionId, u32> {
        lock(&self.runs).clone()
    }
}

impl Machine {
    /// When the action was begun here: now, if it was not before.
    fn begin(&self, id: &ActionId) -> Instant {
        *lock(&self.begun).entry(id.clone()).or_insert_with(|| {
            *lock(&self.runs).entry(id.clone()).or_default() += 1;
            Instant::now()
        })
    }

    async fn cancelled(&self, id: &ActionId) {
        loop {
            let changed = self.changed.notified();
            if lock(&self.cancelled).contains(id) {
                return;
            }
            changed.await;
        }
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
        let refused = |error: IdError| SandboxError::Start { detail: error.to_string(), logs: String::new() };
        let sandbox_id = Self::sandbox_id(&spec.conversation).map_err(refused)?;
        let life = {
            let mut placed = lock(&self.placed);
            *placed += 1;
            *placed
        };
        let machine = Arc::new(Machine {
            lease: SandboxLeased {
                runtime: self.runtime().into(),
                sandbox_id: sandbox_id.clone(),
                boot_id: format!("boot-{life}").try_into().map_err(refused)?,
                working_dir: "/workspace".into(),
            },
            begun: Mutex::default(),
            runs: Arc::clone(&self.runs),
            cancelled: Mutex::default(),
            changed: Notify::new(),
            lost: tokio_util::sync::CancellationToken::new(),
        });
        lock(&self.machines).insert(sandbox_id, Arc::clone(&machine));
        Ok(Box::new(ScriptedSandbox { script: Arc::clone(&self.script), machine }))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        let machine = lock(&self.machines).get(&lease.sandbox_id).cloned();
        match machine {
            Some(machine) if machine.lease == *lease => {
                Ok(Box::new(ScriptedSandbox { script: Arc::clone(&self.script), machine }))
            }
            _ => Err(SandboxError::Lost { detail: "the machine is gone".into() }),
        }
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        match lock(&self.machines).get(sandbox).cloned() {
            Some(machine) => Ok(Box::new(ScriptedSandbox { script: Arc::clone(&self.script), machine })),
            None => Err(SandboxError::Lost { detail: "the machine is gone".into() }),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let placed = |(sandbox, _): (&SandboxId, _)| SandboxSummary {
            sandbox: sandbox.clone(),
            conversation: sandbox.as_str().strip_prefix(PREFIX).and_then(|name| name.parse().ok()),
            lifetime: Lifetime::Conversation,
            image: None,
            condition: SandboxState::Running,
            created_at: None,
        };
        Ok(lock(&self.machines).iter().map(placed).collect())
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        if let Some(machine) = lock(&self.machines).remove(sandbox) {
            machine.lost.cancel();
        }
        Ok(())
    }

    /// A scripted start is never abandoned half-way.
    async fn wait_for_cleanup(&self) {}
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
        let begun = self.machine.begin(id);
        let ending = async {
            match (self.script)(request) {
                ScriptedResult::Observation(observation) => {
                    on_output(OutputChunk::Bytes { offset: 0, bytes: observation.content.as_bytes() });
                    observation
                }
                ScriptedResult::After(duration, observation) => {
                    // Either way it has ended; that nobody cancelled it is no failure.
                    drop(tokio::time::timeout_at(begun + duration, self.machine.cancelled(id)).await);
                    observation
                }
                ScriptedResult::WhenCancelled(observation) => {
                    self.machine.cancelled(id).await;
                    observation
                }
            }
        };
        tokio::select! {
            biased;
            () = self.machine.lost.cancelled() => Err(SandboxError::Lost { detail: "the machine died".into() }),
            observation = ending => Ok(observation),
        }
    }

    /// A file lies wherever the script answers a reader with one.
    async fn status(&self, path: &str) -> Result<Option<FileStatus>, SandboxError> {
        let reading = ActionRequest::new(SandboxAction::Read(ReadAction::whole_file(path)), None);
        let ScriptedResult::Observation(Observation { content, kind: ObservationKind::Read(_), .. }) =
            (self.script)(&reading)
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

    async fn cancel(&self, id: &ActionId) -> Result<(), SandboxError> {
        lock(&self.machine.cancelled).push(id.clone());
        self.machine.changed.notify_waiters();
        Ok(())
    }
}

/// No method waits while it holds one of these.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
