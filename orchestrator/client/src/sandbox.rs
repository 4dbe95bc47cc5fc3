//! Sandboxes of conversations.

use async_trait::async_trait;
use conversations::{SandboxService, ServiceError};
use http::Method;
use protocol::ConversationId;
use protocol::client_api::v2::sandbox::{SandboxInfo, SandboxLogs, SandboxPortList, SandboxUsage};

use crate::RemoteConversations;
use crate::connection::ApiRequest;

#[async_trait]
impl SandboxService for RemoteConversations {
    async fn sandbox(&self, id: &ConversationId) -> Result<SandboxInfo, ServiceError> {
        let find = ApiRequest::of_conversation(Method::GET, id, "/sandbox");
        self.0.send(find).await
    }

    async fn sandbox_usage(&self, id: &ConversationId) -> Result<SandboxUsage, ServiceError> {
        let measure = ApiRequest::of_conversation(Method::GET, id, "/sandbox/usage");
        self.0.send(measure).await
    }

    async fn sandbox_ports(&self, id: &ConversationId) -> Result<SandboxPortList, ServiceError> {
        let list = ApiRequest::of_conversation(Method::GET, id, "/sandbox/ports");
        self.0.send(list).await
    }

    async fn sandbox_logs(&self, id: &ConversationId) -> Result<SandboxLogs, ServiceError> {
        let read = ApiRequest::of_conversation(Method::GET, id, "/sandbox/logs");
        self.0.send(read).await
    }

    async fn pause_sandbox(&self, id: &ConversationId) -> Result<(), ServiceError> {
        let pause = ApiRequest::of_conversation(Method::POST, id, "/sandbox/pause");
        self.0.send_for_bytes(pause).await.0.map(drop)
    }
}
