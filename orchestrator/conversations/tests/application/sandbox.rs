//! Sandboxes of a server's conversations.

use std::sync::Arc;

use async_trait::async_trait;
use conversations::{
    Claim, ComposedAgents, ComposedConversation, ConversationFactory, ConversationParts,
    ConversationRequest, Conversations, ConversationsError, HostError, HostedConversations,
    HostingOptions, InitialTask, NewConversation, NoWorkspaces, ProcessLocks, SandboxAccessError,
    StoredConversation,
};
use engine::agent::{Agent, AgentStep, Agents, TeamMember};
use engine::conversation::SandboxDisposition;
use engine::llm::{Llm, LlmError, LlmProgress};
use engine::sandbox::{SandboxError, SandboxProvider};
use engine::testing::{MemoryStore, ScriptedProvider, ScriptedResult};
use engine::view::View;
use protocol::action::SystemAction;
use protocol::client_api::v2::sandbox::SandboxStatus;
use protocol::record::ConversationStarted;
use protocol::risk::ConfirmationPolicy;
use protocol::{AgentState, ConversationId, Observation, UserCommand};

use super::hosted::{LONG, composed_agents, until};
use super::{embedded, message};

/// Composes conversations whose sandboxes outlive them.
struct KeepingFactory {
    provider: ScriptedProvider,
    disposition: SandboxDisposition,
    /// Whether the agent never completes a step.
    is_hanging: bool,
}

impl KeepingFactory {
    fn parts(&self, id: &ConversationId) -> ConversationParts {
        let parts = embedded::parts(id.clone());
        let agent: Arc<dyn Agent> = match self.is_hanging {
            true => Arc::new(Hanging),
            false => Arc::clone(&parts.agents.own.agent),
        };
        ConversationParts {
            provider: Arc::new(self.provider.clone()),
            disposition: self.disposition,
            agents: Agents::from(TeamMember {
                agent,
                ..parts.agents.own
            }),
            ..parts
        }
    }
}

#[async_trait]
impl ConversationFactory for KeepingFactory {
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError> {
        Ok(NewConversation {
            started: ConversationStarted {
                max_iterations: 10,
                ..ConversationStarted::default()
            },
            parts: self.parts(claim.id()),
            title: Some("Greeting".to_owned()),
            task: request
                .message
                .map_or(InitialTask::None, InitialTask::Message),
        })
    }

    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError> {
        Ok(ComposedConversation {
            parts: self.parts(stored.claim().id()),
            confirmation: ConfirmationPolicy::Never,
        })
    }

    async fn compose_agents(
        &self,
        _: &ConversationStarted,
        _: u32,
    ) -> Result<ComposedAgents, HostError> {
        Ok(composed_agents())
    }

    fn provider(&self, _: &str, _: Option<&str>) -> Result<Arc<dyn SandboxProvider>, HostError> {
        Ok(Arc::new(self.provider.clone()))
    }

    fn disposition(&self) -> SandboxDisposition {
        self.disposition
    }
}

/// An agent that works forever.
struct Hanging;

#[async_trait]
impl Agent for Hanging {
    fn name(&self) -> &str {
        "Hanging"
    }

    fn system(&self) -> SystemAction {
        SystemAction::default()
    }

    async fn step(
        &self,
        _: &View,
        _: &dyn Llm,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError> {
        std::future::pending().await
    }
}

fn provider() -> ScriptedProvider {
    ScriptedProvider::new(|_| ScriptedResult::Observation(Observation::error("no action", "")))
}

/// Creates a conversation, and waits until its sandbox is connected.
async fn greeting(factory: KeepingFactory) -> (Arc<HostedConversations>, ConversationId) {
    let conversations = Conversations::new(
        Arc::new(MemoryStore::default()),
        Arc::new(ProcessLocks::default()),
        Arc::new(NoWorkspaces),
    );
    let options = HostingOptions {
        max_running: 10,
        max_running_per_user: 10,
        close_delay: LONG,
    };
    let hosted = HostedConversations::new(conversations, Arc::new(factory), options);
    let request = ConversationRequest {
        message: Some(message("Greet me.")),
        ..ConversationRequest::default()
    };
    let id = hosted.create(request).await.unwrap();
    // Waits for the sandbox. Scripted ones have no ports.
    let ports = hosted.sandbox_ports(&id).await;
    assert!(matches!(
        ports,
        Err(SandboxAccessError::Sandbox(
            SandboxError::Unsupported { .. }
        ))
    ));
    (hosted, id)
}

#[tokio::test(start_paused = true)]
async fn paused_sandbox_is_resumed_by_the_next_command() {
    let provider = provider().with_pausing();
    let (hosted, id) = greeting(KeepingFactory {
        provider: provider.clone(),
        disposition: SandboxDisposition::Keep,
        is_hanging: false,
    })
    .await;
    until(&hosted, &id, AgentState::AwaitingUserInput).await;
    let connected = hosted.sandbox_info(&id).await.unwrap();
    assert_eq!(connected.status, SandboxStatus::Connected);
    let sandbox = connected.id.clone().unwrap();
    for _ in 0..2 {
        hosted.pause_sandbox(&id).await.unwrap();
        assert!(provider.is_paused(&sandbox) && hosted.state(&id).is_none());
        let kept = hosted.sandbox_info(&id).await.unwrap();
        assert_eq!(
            (kept.status, &kept.id),
            (SandboxStatus::Kept, &connected.id)
        );
    }
    let closed = hosted.sandbox_logs(&id).await;
    assert!(matches!(
        closed,
        Err(SandboxAccessError::Conversation(
            ConversationsError::NotRunning(_)
        ))
    ));
    hosted
        .apply(&id, UserCommand::message("Ada"))
        .await
        .unwrap();
    until(&hosted, &id, AgentState::Finished).await;
    assert!(!provider.is_paused(&sandbox));
    assert_eq!(hosted.sandbox_info(&id).await.unwrap(), connected);
    assert_eq!(provider.sandbox_count(), 1);
}

/// The conversation keeps running if its sandbox is not paused.
#[tokio::test(start_paused = true)]
async fn sandbox_is_not_paused_when_it_is_used_or_cannot_be() {
    use SandboxDisposition::{Pause, Remove};
    for (provider, disposition, is_hanging, expected) in [
        (provider().with_pausing(), Remove, false, "would be removed"),
        (provider().with_pausing(), Pause, true, "is working"),
        (provider(), Pause, false, "cannot pause a sandbox"),
    ] {
        let (hosted, id) = greeting(KeepingFactory {
            provider,
            disposition,
            is_hanging,
        })
        .await;
        if !is_hanging {
            until(&hosted, &id, AgentState::AwaitingUserInput).await;
        }
        let error = hosted.pause_sandbox(&id).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let status = hosted.sandbox_info(&id).await.unwrap().status;
        assert_eq!(status, SandboxStatus::Connected, "{expected}");
    }
}
