//! The sandbox of a running conversation, and the ports on which its programs listen.

use std::sync::Arc;
use std::time::Duration;

use engine::conversation::{SandboxConnection, State};
use engine::sandbox::{ByteStream, Sandbox, SandboxError, SandboxProvider, StreamTarget};
use protocol::sandbox_api::ListeningPort;
use protocol::{ConversationId, SandboxId};
use tokio::time::timeout;

use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::service::{ServiceError, ServiceErrorKind};

/// Maximum time of [`Conversations::wait_for_sandbox`].
const MAX_SANDBOX_WAIT: Duration = Duration::from_secs(30);

/// Why the sandbox of a conversation cannot be accessed.
#[derive(Debug, thiserror::Error)]
pub enum SandboxAccessError {
    /// The conversation does not exist, or has no sandbox at the moment.
    #[error(transparent)]
    Conversation(#[from] ConversationsError),
    /// The sandbox is lost, its runtime cannot do this, or it has no listener on the port.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl From<SandboxAccessError> for ServiceError {
    fn from(error: SandboxAccessError) -> Self {
        let error = match error {
            SandboxAccessError::Conversation(error) => return error.into(),
            SandboxAccessError::Sandbox(error) => error,
        };
        let kind = match &error {
            SandboxError::Refused { .. }
            | SandboxError::Invalid { .. }
            | SandboxError::Unsupported { .. } => ServiceErrorKind::Conflict,
            _ => ServiceErrorKind::Unavailable,
        };
        Self {
            kind,
            message: format!("cannot access the sandbox: {error}"),
            source: Some(Box::new(error)),
        }
    }
}

impl Conversations {
    /// Returns the ports with a listener in the sandbox of a running conversation.
    ///
    /// # Errors
    /// [`SandboxAccessError::Conversation`] if it does not run or has no sandbox at the moment, or
    /// see [`SandboxError`].
    pub async fn ports(
        &self,
        id: &ConversationId,
    ) -> Result<Vec<ListeningPort>, SandboxAccessError> {
        Ok(self.sandbox(id).await?.streams()?.ports().await?)
    }

    /// Connects to a port in the sandbox of a running conversation.
    ///
    /// # Errors
    /// See [`ports`](Self::ports); [`SandboxError::Refused`] if no program listens.
    pub async fn connect_port(
        &self,
        id: &ConversationId,
        port: u16,
    ) -> Result<Box<dyn ByteStream>, SandboxAccessError> {
        Ok(self
            .sandbox(id)
            .await?
            .streams()?
            .open(&StreamTarget::Port(port))
            .await?)
    }

    /// Waits for up to half a minute while the sandbox of a running conversation is created or
    /// reached.
    pub(crate) async fn wait_for_sandbox(&self, id: &ConversationId) {
        let running = self
            .running
            .with(id, |running| Arc::clone(&running.conversation));
        let Ok(conversation) = running else { return };
        let is_decided = |state: &State| state.schedule.sandbox != SandboxConnection::Connecting;
        // The caller finds out whether there is one.
        let _ = timeout(MAX_SANDBOX_WAIT, conversation.wait_for(is_decided)).await;
    }

    /// Returns the sandbox of a running conversation and its provider, which redacts secrets, once
    /// the sandbox is created or reached.
    pub(crate) async fn connected_sandbox(
        &self,
        id: &ConversationId,
    ) -> Result<(Arc<dyn SandboxProvider>, SandboxId), ConversationsError> {
        self.wait_for_sandbox(id).await;
        let sandbox = self.sandbox(id).await?;
        let provider = self
            .running
            .with(id, |running| Arc::clone(&running.parts.provider))?;
        Ok((provider, sandbox.lease().sandbox_id.clone()))
    }

    /// Returns the sandbox of a running conversation.
    pub(crate) async fn sandbox(
        &self,
        id: &ConversationId,
    ) -> Result<Arc<dyn Sandbox>, ConversationsError> {
        match self
            .running
            .with(id, |running| running.conversation.sandbox())
        {
            Ok(sandbox) => sandbox.ok_or_else(|| ConversationsError::NoSandbox(id.clone())),
            Err(error) => self.event_count(id).await.and(Err(error)),
        }
    }
}
