//! Wraps tool servers to redact their offers and results. The event store would redact them too,
//! but it would fail the conversation if a result cannot be redacted, and an offer would differ
//! from the logged one for ever. Here only that result or tool is lost.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::Observation;
use protocol::action::SystemAction;
use serde_json::{Map, Value};

use super::Redactor;
use crate::llm::Tool;
use crate::sandbox::Sandbox;
use crate::tool_servers::{
    CALL_FAILED, SandboxToolServer, ToolOffer, ToolServerFailure, ToolServers,
};

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

    /// Redacts a tool as its event is redacted, so that a later offer equals the logged one. `None`
    /// if it could not be called, or cannot be read again.
    fn redacted(&self, tool: &Tool) -> Option<Tool> {
        let stored = self.redactor.json(tool.to_stored());
        let is_stable = self.redactor.json(stored.clone()) == stored;
        let system = SystemAction {
            tools: Some(vec![stored]),
            ..SystemAction::default()
        };
        Tool::all_from_stored(&system)
            .next()
            .filter(|redacted| is_stable && redacted.name == tool.name)
    }
}

#[async_trait]
impl ToolServers for GuardedToolServers {
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        let ToolOffer {
            sandbox_tools,
            tools,
            are_too_many,
            failures,
            obstacle,
        } = self.servers.offer(sandbox).await;
        let failures = failures.into_iter().map(|failure| ToolServerFailure {
            server: self.redactor.text(&failure.server).into_owned(),
            reason: self.redactor.text(&failure.reason).into_owned(),
        });
        ToolOffer {
            sandbox_tools,
            tools: tools
                .iter()
                .filter_map(|tool| self.redacted(tool))
                .collect(),
            are_too_many,
            failures: failures.collect(),
            obstacle: obstacle.map(|obstacle| self.redactor.text(&obstacle).into_owned()),
        }
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
