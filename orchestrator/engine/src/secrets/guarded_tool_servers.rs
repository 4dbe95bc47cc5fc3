//! Wraps tool servers to redact their results. The event store would redact them too, but it would fail the conversation
//! if a result cannot be redacted. Here only that result is lost.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::Observation;
use serde_json::{Map, Value};

use super::Redactor;
use crate::sandbox::Sandbox;
use crate::tool_servers::{CALL_FAILED, SandboxToolServer, ToolOffer, ToolServers};

/// Wraps the tool servers of a conversation.
pub struct GuardedToolServers {
    servers: Arc<dyn ToolServers>,
    redactor: Redactor,
}

impl GuardedToolServers {
    /// Wraps these servers.
    pub fn new(servers: Arc<dyn ToolServers>, redactor: Redactor) -> Self {
        Self { servers, redactor }
    }
}

#[async_trait]
impl ToolServers for GuardedToolServers {
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        self.servers.offer(sandbox).await
    }

    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation {
        let observation = self.servers.call(name, arguments).await;
        self.redactor.observation(observation).unwrap_or_else(|_| {
            Observation::error(
                "the result cannot be shown: the value of a secret is a keyword of the log format",
                CALL_FAILED,
            )
        })
    }

    async fn set_sandbox_servers(&self, servers: Vec<SandboxToolServer>) {
        self.servers.set_sandbox_servers(servers).await;
    }

    fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    async fn shut_down(&self) {
        self.servers.shut_down().await;
    }
}
