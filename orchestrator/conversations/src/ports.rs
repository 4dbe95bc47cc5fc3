//! Ports on which programs in the sandbox of a running conversation listen.

use std::sync::Arc;
use std::time::Duration;

use engine::conversation::{SandboxConnection, State};
use engine::sandbox::{ByteStream, Sandbox, SandboxError, StreamTarget};
use protocol::ConversationId;
use protocol::sandbox_api::ListeningPort;
use tokio::time::timeout;

use crate::conversations::Conversations;
use crate::error::ConversationsError;

/// Maximum time of [`Conversations::wait_for_sandbox`].
const MAX_SANDBOX_WAIT: Duration = Duration::from_secs(30);

/// Why a port of a sandbox cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The conversation does not exist, or has no sandbox at the moment.
    #[error(transparent)]
    Conversation(#[from] ConversationsError),
    /// The sandbox is lost, or has no listener on the port.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl Conversations {
    /// Returns the ports with a listener in the sandbox of a running conversation.
    ///
    /// # Errors
    /// [`PortError::Conversation`] if it does not run or has no sandbox at the moment, or see
    /// [`SandboxError`].
    pub async fn ports(&self, id: &ConversationId) -> Result<Vec<ListeningPort>, PortError> {
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
    ) -> Result<Box<dyn ByteStream>, PortError> {
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
