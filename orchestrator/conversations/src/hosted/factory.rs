//! The trait that composes the parts of a server's conversations.

use std::sync::Arc;

use async_trait::async_trait;
use engine::conversation::SandboxDisposition;
use engine::replay::Trajectory;
use engine::sandbox::SandboxProvider;
use protocol::action::MessageAction;
use protocol::client_api::git::GitProvider;
use protocol::client_api::v2::CreateConversation;
use protocol::record::{ConversationStarted, ConversationTrigger};
use protocol::risk::ConfirmationPolicy;
use protocol::{ConversationId, UserId};

use crate::claim::Claim;
use crate::client_limits::{check_model_name, check_sent, check_text, check_title};
use crate::error::InvalidRequest;
use crate::host::HostError;
use crate::parts::{ComposedAgents, ConversationParts};
use crate::start::NewConversation;
use crate::stored::StoredConversation;

/// Composes conversations from the configuration of a server. Implemented by the composition root.
#[async_trait]
pub trait ConversationFactory: Send + Sync {
    /// Composes a new conversation with the settings of its owner, and locks its folder with the
    /// claim.
    ///
    /// # Errors
    /// [`HostError::Refused`] if the request does not fit the configuration, such as one for an
    /// unknown agent.
    async fn compose_new(
        &self,
        claim: &mut Claim,
        request: ConversationRequest,
    ) -> Result<NewConversation, HostError>;

    /// Composes a stored conversation with the settings of its owner, and locks its folder with the
    /// claim.
    ///
    /// # Errors
    /// [`HostError::Refused`] if the configuration has changed so that the conversation cannot be
    /// resumed.
    async fn compose_stored(
        &self,
        stored: &mut StoredConversation,
    ) -> Result<ComposedConversation, HostError>;

    /// Composes the agents of a conversation with the model in `started`, which its user has chosen
    /// for it. They have taken `steps` steps.
    ///
    /// # Errors
    /// [`HostError::Refused`] if the user cannot use the model, [`HostError::NoModelKey`] if its
    /// key is missing.
    async fn compose_agents(
        &self,
        started: &ConversationStarted,
        steps: u32,
    ) -> Result<ComposedAgents, HostError>;

    /// Returns the provider of a runtime's sandboxes. `host` replaces the configured host of the
    /// runtime `ssh`.
    ///
    /// # Errors
    /// [`HostError::Refused`] if the runtime is not configured.
    fn provider(
        &self,
        runtime: &str,
        host: Option<&str>,
    ) -> Result<Arc<dyn SandboxProvider>, HostError>;

    /// Returns what happens to the sandbox of a conversation that is closed.
    fn disposition(&self) -> SandboxDisposition;
}

/// Checks the id that a client has chosen for a new conversation.
pub(super) fn check_new_id(id: Option<&ConversationId>) -> Result<(), InvalidRequest> {
    if id.is_some_and(|id| uuid::Uuid::try_parse(id.as_str()).is_err()) {
        return Err(InvalidRequest::new("id", "must be a UUID"));
    }
    Ok(())
}

/// A user's request for a new conversation.
#[derive(Debug, Clone, Default)]
pub struct ConversationRequest {
    /// The id that the client has chosen, a UUID. `None` to generate one.
    pub id: Option<ConversationId>,
    /// The user who owns it, and with whose settings it is composed. `None` for the operator.
    pub owner: Option<UserId>,
    /// The agent. `None` for that of the owner's settings.
    pub agent: Option<String>,
    /// The model. If there is none, the owner's settings name it, or else the configuration.
    pub model: Option<String>,
    /// The first message. If there is none, the agent waits for it.
    pub message: Option<MessageAction>,
    /// Instructions for the agent that precede the message.
    pub instructions: Option<String>,
    /// Repository to clone into the workspace: its full name at the provider, or a URL.
    pub repository: Option<String>,
    /// Where the repository is hosted. If there is none, the only provider that the user has a
    /// token for, else GitHub.
    pub git_provider: Option<GitProvider>,
    /// Branch of the repository. If there is none, its default branch.
    pub branch: Option<String>,
    /// A saved conversation to replay before the agent continues. Excludes a message.
    pub trajectory: Option<Trajectory>,
    /// The title. If there is none, one is generated.
    pub title: Option<String>,
    /// What creates it.
    pub trigger: ConversationTrigger,
}

impl ConversationRequest {
    /// Checks what clients send, and removes from the message what only agents have.
    pub(super) fn check(&mut self) -> Result<(), InvalidRequest> {
        check_new_id(self.id.as_ref())?;
        if let Some(model) = &self.model {
            check_model_name(model)?;
        }
        if let Some(message) = &mut self.message {
            check_sent(message)?;
        }
        check_text(
            "instructions",
            self.instructions.as_deref().unwrap_or_default(),
        )?;
        check_title("title", self.title.as_deref().unwrap_or_default())
    }

    /// Creates the request of a client's user. `None` for the operator.
    pub fn new(owner: Option<UserId>, request: CreateConversation) -> Self {
        let CreateConversation {
            id,
            agent,
            model,
            message,
            instructions,
            repository,
            git_provider,
            branch,
            title,
        } = request;
        Self {
            id,
            owner,
            agent,
            model,
            message,
            instructions,
            repository,
            git_provider,
            branch,
            trajectory: None,
            title: title.filter(|title| !title.trim().is_empty()),
            trigger: ConversationTrigger::Api,
        }
    }
}

/// A stored conversation that is ready to be resumed.
pub struct ComposedConversation {
    /// Its parts.
    pub parts: ConversationParts,
    /// Which actions require the user's confirmation from now on.
    pub confirmation: ConfirmationPolicy,
}
