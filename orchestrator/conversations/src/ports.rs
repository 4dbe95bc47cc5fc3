//! Ports on which programs in the sandbox of a running conversation listen.

use std::sync::Arc;

use engine::sandbox::{ByteStream, Sandbox, SandboxError, StreamTarget};
use protocol::ConversationId;
use protocol::sandbox_api::ListeningPort;

use crate::{Conversations, ConversationsError};

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
