//! Implements a runtime whose sandboxes hold files in memory, and can only read and write them.
//!
//! A real runtime starts an action server and forwards actions to it, as the crates in
//! `orchestrator/sandbox` do.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use engine::sandbox::{
    Lifetime, OnOutput, Sandbox, SandboxError, SandboxFiles, SandboxMonitoring, SandboxPausing,
    SandboxProcesses, SandboxProvider, SandboxSnapshots, SandboxSpec, SandboxState, SandboxStreams,
    SandboxSummary, ServerAccess, StartProgress,
};
use protocol::action::ReadAction;
use protocol::observation::{ReadObservation, WriteObservation};
use protocol::record::SandboxLeased;
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::{ActionId, ConversationId, EventId, IdError, Observation, SandboxId};
use serde_json::json;

/// State of a sandbox. It outlives its clients.
struct MemoryMachine {
    lease: SandboxLeased,
    conversation: ConversationId,
    files: Mutex<BTreeMap<String, String>>,
    /// Results by id: an action never runs twice.
    results: Mutex<BTreeMap<ActionId, Observation>>,
}

#[derive(Default)]
struct MemoryProvider(Mutex<BTreeMap<SandboxId, Arc<MemoryMachine>>>);

struct MemorySandbox(Arc<MemoryMachine>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_error(error: IdError) -> SandboxError {
    SandboxError::Start {
        detail: error.to_string(),
        logs: String::new(),
    }
}

#[async_trait]
impl SandboxProvider for MemoryProvider {
    fn runtime(&self) -> &'static str {
        "memory"
    }

    async fn create(
        &self,
        spec: &SandboxSpec,
        on_progress: &(dyn Fn(StartProgress) + Send + Sync),
    ) -> Result<Box<dyn Sandbox>, SandboxError> {
        on_progress(StartProgress::Starting);
        let sandbox_id: SandboxId = format!("memory-{}", spec.conversation)
            .try_into()
            .map_err(start_error)?;
        let machine = Arc::new(MemoryMachine {
            lease: SandboxLeased {
                runtime: self.runtime().to_owned(),
                sandbox_id: sandbox_id.clone(),
                boot_id: "boot-1".to_owned().try_into().map_err(start_error)?,
                working_dir: "/".to_owned(),
            },
            conversation: spec.conversation.clone(),
            files: Mutex::default(),
            results: Mutex::default(),
        });
        lock(&self.0).insert(sandbox_id, Arc::clone(&machine));
        Ok(Box::new(MemorySandbox(machine)))
    }

    async fn attach(&self, lease: &SandboxLeased) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.find(&lease.sandbox_id).await
    }

    async fn find(&self, sandbox: &SandboxId) -> Result<Box<dyn Sandbox>, SandboxError> {
        match lock(&self.0).get(sandbox) {
            Some(machine) => Ok(Box::new(MemorySandbox(Arc::clone(machine)))),
            None => Err(SandboxError::Lost {
                detail: format!("there is no sandbox {sandbox}"),
            }),
        }
    }

    async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let summary = |machine: &Arc<MemoryMachine>| SandboxSummary {
            sandbox: machine.lease.sandbox_id.clone(),
            conversation: Some(machine.conversation.clone()),
            lifetime: Lifetime::Conversation,
            image: None,
            condition: SandboxState::Running,
            created_at: None,
        };
        Ok(lock(&self.0).values().map(summary).collect())
    }

    fn pausing(&self) -> Result<&dyn SandboxPausing, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: self.runtime(),
            what: "pause a sandbox",
        })
    }

    fn snapshots(&self) -> Result<&dyn SandboxSnapshots, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: self.runtime(),
            what: "make snapshots",
        })
    }

    fn monitoring(&self) -> Result<&dyn SandboxMonitoring, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: self.runtime(),
            what: "monitor sandboxes",
        })
    }

    async fn server_access(&self, _: &SandboxId) -> Result<ServerAccess, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: self.runtime(),
            what: "lease a sandbox to clients",
        })
    }

    async fn destroy(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        lock(&self.0).remove(sandbox);
        Ok(())
    }

    async fn wait_for_cleanup(&self) {}
}

#[async_trait]
impl Sandbox for MemorySandbox {
    fn lease(&self) -> &SandboxLeased {
        &self.0.lease
    }

    async fn execute(
        &self,
        id: &ActionId,
        request: &ActionRequest,
        _: &OnOutput<'_>,
    ) -> Result<Observation, SandboxError> {
        if let Some(result) = lock(&self.0.results).get(id) {
            return Ok(result.clone());
        }
        let result = perform(&mut lock(&self.0.files), &request.action);
        lock(&self.0.results).insert(id.clone(), result.clone());
        Ok(result)
    }

    /// Actions complete immediately.
    async fn cancel(&self, _: &ActionId) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn check_connection(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    fn processes(&self) -> Result<&dyn SandboxProcesses, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "memory",
            what: "run programs",
        })
    }

    fn streams(&self) -> Result<&dyn SandboxStreams, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "memory",
            what: "open streams",
        })
    }

    fn files(&self) -> Result<&dyn SandboxFiles, SandboxError> {
        Err(SandboxError::Unsupported {
            runtime: "memory",
            what: "transfer files",
        })
    }
}

fn perform(files: &mut BTreeMap<String, String>, action: &SandboxAction) -> Observation {
    match action {
        SandboxAction::Write(write) => {
            files.insert(write.path.clone(), write.content.clone());
            Observation::new(
                "",
                WriteObservation {
                    path: write.path.clone(),
                },
            )
        }
        SandboxAction::Read(ReadAction { path, .. }) => match files.get(path) {
            Some(content) => Observation::new(
                content,
                ReadObservation {
                    path: path.clone(),
                    ..Default::default()
                },
            ),
            None => Observation::error(
                format!("cannot read {path}: it does not exist"),
                "NO_SUCH_FILE",
            ),
        },
        other => Observation::error(
            format!("cannot run `{}` in a sandbox in memory", other.kind()),
            "UNSUPPORTED",
        ),
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let provider = MemoryProvider::default();
    let conversation: ConversationId = "example".parse()?;
    let sandbox = provider
        .create(&SandboxSpec::new(conversation.clone()), &|_| {})
        .await?;
    let write: ActionRequest = serde_json::from_value(
        json!({"action": "write", "args": {"path": "/a", "content": "text"}}),
    )?;
    let read = ActionRequest::new(SandboxAction::Read(ReadAction::whole_file("/a")), None);
    for (number, request) in [write, read].iter().enumerate() {
        let id = ActionId::for_event(&conversation, EventId(number as u64));
        let observation = sandbox.execute(&id, request, &|_| {}).await?;
        tracing::info!(%id, kind = observation.kind.kind(), content = observation.content, "performed");
        if number == 1 && observation.content != "text" {
            return Err("the file has another content".into());
        }
    }
    provider.destroy(&sandbox.lease().sandbox_id).await?;
    Ok(())
}
