//! Sandboxes of conversations.

use std::sync::Arc;

use async_trait::async_trait;
use engine::conversation::{SandboxConnection, SandboxDisposition};
use protocol::ConversationId;
use protocol::client_api::v2::sandbox::{
    SandboxInfo, SandboxLogs, SandboxPort, SandboxPortList, SandboxStatus, SandboxUsage,
};

use super::HostedConversations;
use super::user::UserConversations;
use crate::error::ConversationsError;
use crate::ports::SandboxAccessError;
use crate::running::CloseReason;
use crate::sandbox_service::SandboxService;
use crate::service::ServiceError;

impl HostedConversations {
    /// Returns the sandbox of a conversation, whether it runs or not.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn sandbox_info(
        &self,
        id: &ConversationId,
    ) -> Result<SandboxInfo, ConversationsError> {
        let is_running = self.conversations.is_running(id);
        let state = self.latest_state(id).await?;
        let status = match state.schedule.sandbox {
            SandboxConnection::Connecting if is_running => SandboxStatus::Starting,
            SandboxConnection::Connected if is_running => SandboxStatus::Connected,
            _ if state.lease.is_some() => SandboxStatus::Kept,
            _ => SandboxStatus::Absent,
        };
        let lease = state.lease.as_ref();
        Ok(SandboxInfo {
            status,
            runtime: lease.map(|lease| lease.runtime.clone()),
            id: lease.map(|lease| lease.sandbox_id.clone()),
            working_dir: lease.map(|lease| lease.working_dir.clone()),
        })
    }

    /// Measures the sandbox of a running conversation.
    ///
    /// # Errors
    /// See [`SandboxAccessError`]. [`SandboxError::Unsupported`](engine::sandbox::SandboxError) if
    /// the runtime measures nothing.
    pub async fn sandbox_usage(
        &self,
        id: &ConversationId,
    ) -> Result<SandboxUsage, SandboxAccessError> {
        let (provider, sandbox) = self.conversations.connected_sandbox(id).await?;
        let usage = provider.monitoring()?.usage(&sandbox).await?;
        Ok(SandboxUsage {
            cpus: usage.cpus,
            memory_bytes: usage.memory_bytes,
            memory_limit_bytes: usage.memory_limit_bytes,
            pids: usage.pids,
        })
    }

    /// Returns the ports with a listener in the sandbox of a running conversation, without links.
    ///
    /// # Errors
    /// See [`SandboxAccessError`].
    pub async fn sandbox_ports(
        &self,
        id: &ConversationId,
    ) -> Result<SandboxPortList, SandboxAccessError> {
        self.conversations.wait_for_sandbox(id).await;
        let listening = self.conversations.ports(id).await?.into_iter();
        let mut ports: Vec<_> = listening
            .map(|listening| SandboxPort {
                port: listening.port,
                processes: listening.processes.into_iter().map(|it| it.name).collect(),
                link: None,
            })
            .collect();
        ports.sort_by_key(|port| port.port);
        Ok(SandboxPortList { ports })
    }

    /// Returns the latest logs of the sandbox of a running conversation, without secrets.
    ///
    /// # Errors
    /// See [`SandboxAccessError`].
    pub async fn sandbox_logs(
        &self,
        id: &ConversationId,
    ) -> Result<SandboxLogs, SandboxAccessError> {
        let (provider, sandbox) = self.conversations.connected_sandbox(id).await?;
        let text = provider.monitoring()?.logs(&sandbox).await?;
        Ok(SandboxLogs { text })
    }

    /// Closes an idle conversation, and freezes the processes of its sandbox. The next command that
    /// runs the conversation resumes it. Idempotent.
    ///
    /// # Errors
    /// [`ConversationsError::Working`] while the agent works, [`ConversationsError::NoSandbox`],
    /// [`ConversationsError::SandboxNotKept`] if sandboxes of closed conversations are removed,
    /// [`SandboxError::Unsupported`](engine::sandbox::SandboxError), or see [`SandboxAccessError`].
    pub async fn pause_sandbox(
        self: &Arc<Self>,
        id: &ConversationId,
    ) -> Result<(), SandboxAccessError> {
        let paused = self.change(id, move |this, id| async move {
            let state = this.latest_state(&id).await?;
            let lease = state.lease.clone();
            let lease = lease.ok_or_else(|| ConversationsError::NoSandbox(id.clone()))?;
            if this.factory.disposition() == SandboxDisposition::Remove {
                return Err(ConversationsError::SandboxNotKept(id));
            }
            let host = state.started.as_ref().and_then(|it| it.host.as_deref());
            let provider = this.factory.provider(&lease.runtime, host)?;
            // A runtime that cannot pause sandboxes closes no conversation.
            let pausing = match provider.pausing() {
                Ok(pausing) => pausing,
                Err(error) => return Ok(Err(error)),
            };
            if !this.conversations.is_running(&id) {
                this.check_not_running_elsewhere(&id).await?;
            } else if this.conversations.is_idle(&id) {
                this.close(&id, CloseReason::Shutdown).await?;
            } else {
                return Err(ConversationsError::Working(id));
            }
            // No other process runs it meanwhile.
            let _claim = this.conversations.claim(&id).await?;
            Ok(pausing.pause(&lease.sandbox_id).await)
        });
        Ok(paused.await??)
    }
}

#[async_trait]
impl SandboxService for UserConversations {
    async fn sandbox(&self, id: &ConversationId) -> Result<SandboxInfo, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.sandbox_info(id).await?)
    }

    async fn sandbox_usage(&self, id: &ConversationId) -> Result<SandboxUsage, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.sandbox_usage(id).await?)
    }

    async fn sandbox_ports(&self, id: &ConversationId) -> Result<SandboxPortList, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.sandbox_ports(id).await?)
    }

    async fn sandbox_logs(&self, id: &ConversationId) -> Result<SandboxLogs, ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.sandbox_logs(id).await?)
    }

    async fn pause_sandbox(&self, id: &ConversationId) -> Result<(), ServiceError> {
        self.authorize(id).await?;
        Ok(self.hosted.pause_sandbox(id).await?)
    }
}
