//! The service for the sandboxes of conversations.

use async_trait::async_trait;
use protocol::ConversationId;
use protocol::client_api::v2::sandbox::{SandboxInfo, SandboxLogs, SandboxPortList, SandboxUsage};

use crate::service::ServiceError;

/// The sandboxes of one user's conversations, or all of them for the operator. Implemented as
/// [`ConversationService`](crate::ConversationService) is.
#[async_trait]
pub trait SandboxService: Send + Sync {
    /// Returns the sandbox of a conversation, whether it runs or not.
    async fn sandbox(&self, id: &ConversationId) -> Result<SandboxInfo, ServiceError>;

    /// Measures the sandbox of a running conversation, if its runtime can.
    async fn sandbox_usage(&self, id: &ConversationId) -> Result<SandboxUsage, ServiceError>;

    /// Returns the ports on which programs in the sandbox of a running conversation listen.
    async fn sandbox_ports(&self, id: &ConversationId) -> Result<SandboxPortList, ServiceError>;

    /// Returns the latest logs of the sandbox of a running conversation, if its runtime has any.
    async fn sandbox_logs(&self, id: &ConversationId) -> Result<SandboxLogs, ServiceError>;

    /// Closes an idle conversation, and freezes the processes of its sandbox, if its runtime can.
    /// The next command that runs the conversation resumes it. Idempotent.
    async fn pause_sandbox(&self, id: &ConversationId) -> Result<(), ServiceError>;
}
