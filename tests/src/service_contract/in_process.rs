//! The service in process, with an agent and parts of the engine's fakes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conversations::{
    Claim, ComposedAgents, ComposedConversation, ConversationFactory, ConversationRequest,
    ConversationService, Conversations, HostError, HostedConversations, HostingOptions,
    InitialTask, NewConversation, NoWorkspaces, ProcessLocks, StoredConversation,
    UserConversations,
};
use engine::conversation::SandboxDisposition;
use engine::events::EventStore;
use engine::sandbox::SandboxProvider;
use engine::secrets::Redactor;
use engine::testing::{MemoryStore, ScriptedProvider, ScriptedResult};
use protocol::Observation;
use protocol::observation::RunObservation;
use protocol::record::ConversationStarted;
use protocol::risk::ConfirmationPolicy;

use super::ServiceBackend;

#[expect(dead_code, reason = "its `main` is for the example")]
#[path = "../../../orchestrator/conversations/examples/embedded.rs"]
mod embedded;

/// The service in process.
pub struct InProcess(Arc<HostedConversations>);

impl InProcess {
    /// Creates a service without conversations, in memory.
    #[expect(clippy::new_without_default, reason = "like other backends")]
    pub fn new() -> Self {
        Self::with_store(Arc::new(MemoryStore::default()))
    }

    /// Creates a service of the conversations in a store.
    pub fn with_store(store: Arc<dyn EventStore>) -> Self {
        let locks = Arc::new(ProcessLocks::default());
        let conversations = Conversations::new(store, locks, Arc::new(NoWorkspaces));
        let options = HostingOptions {
            max_running: 10,
            max_running_per_user: 10,
            close_delay: Duration::from_secs(3600),
        };
        let factory = Arc::new(GreeterFactory);
        Self(HostedConversations::new(conversations, factory, options))
    }
}

#[async_trait]
impl ServiceBackend for InProcess {
    fn service(&self, user: Option<&str>) -> Arc<dyn ConversationService> {
        let user = user.map(|name| name.parse().unwrap());
        Arc::new(UserConversations::new(Arc::clone(&self.0), user))
    }
}

/// Composes conversations with an agent that asks for a name, and then greets.
struct GreeterFactory;

#[async_trait]
impl ConversationFactory for GreeterFactory {
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError> {
        let task = request.message.map(InitialTask::Message);
        Ok(NewConversation {
            started: ConversationStarted {
                max_iterations: 10,
                ..ConversationStarted::default()
            },
            parts: embedded::parts(claim.id().clone()),
            title: request.title,
            task: task.unwrap_or(InitialTask::None),
        })
    }

    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError> {
        Ok(ComposedConversation {
            parts: embedded::parts(stored.claim().id().clone()),
            confirmation: ConfirmationPolicy::Never,
        })
    }

    async fn compose_agents(
        &self,
        started: &ConversationStarted,
        _: u32,
    ) -> Result<ComposedAgents, HostError> {
        if !["", "ReadOnlyAgent"].contains(&started.agent.as_str()) {
            let reason = format!("there is no agent {}", started.agent);
            return Err(HostError::Refused(reason));
        }
        Ok(ComposedAgents {
            agents: embedded::parts(Conversations::new_id()).agents,
            redactor: Redactor::default(),
        })
    }

    fn provider(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn SandboxProvider>, HostError> {
        let script =
            |_: &_| ScriptedResult::Observation(Observation::new("", RunObservation::default()));
        Ok(Arc::new(ScriptedProvider::new(script)))
    }

    fn disposition(&self) -> SandboxDisposition {
        SandboxDisposition::Remove
    }
}
