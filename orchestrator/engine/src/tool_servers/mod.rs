//! The trait of tool servers: programs whose tools a model may call, such as MCP servers.
//!
//! Servers become available late: those in the sandbox once it exists, others once they respond.
//! Therefore the first `system` event of a log holds only the agent's own tools. The tools of
//! servers are logged as a `system` event of the environment, without a prompt, once the servers
//! are ready. The latest one is valid ([`View::offered_tools`](crate::view::View::offered_tools)).
//! A resumed conversation has its tools before the servers run again, and the agent keeps no state.
//! A failed server is an `error` observation of the environment, and fails nothing else.
//!
//! Providers cache a request from its start, which has the tools, and bind a model's reasoning to
//! it. So the tools do not change between two condensations, and many tools are not listed at all:
//! [`announce`] decides.
//!
//! The conversation calls [`ToolServers::offer`] before each [`ToolServers::call`], and before each
//! step that starts a new response. It appends the events that [`announce`] returns. `offer` has
//! timeouts, so that no server blocks the conversation.

mod announcement;
mod search;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use protocol::Observation;
use serde_json::{Map, Value};

use crate::llm::Tool;
use crate::sandbox::Sandbox;

pub use announcement::announce;
pub use search::{CALL_TOOL, SEARCH_TOOLS};

/// The `error_id` of the observation of a server without tools.
pub const SERVER_FAILED: &str = "MCP$SERVER_FAILED";

/// The `error_id` of the observation of a failed call.
pub const CALL_FAILED: &str = "MCP$CALL_FAILED";

/// The tools that servers offer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOffer {
    /// The agent's own tools that the sandbox supports.
    pub sandbox_tools: Vec<Tool>,
    /// The tools of servers, under names that providers accept and that differ from the agent's own
    /// tools.
    pub tools: Vec<Tool>,
    /// Whether the definitions of these tools cost more than is configured, so that the model
    /// searches for them.
    pub are_too_many: bool,
    /// The failed servers.
    pub failures: Vec<ToolServerFailure>,
    /// Why the agent cannot work: a tool that it requires and the sandbox does not support.
    /// Human-readable.
    pub obstacle: Option<String>,
}

/// A server whose tools are missing, at least in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerFailure {
    /// Its name in the configuration.
    pub server: String,
    /// The reason in one line, human-readable, without secrets.
    pub reason: String,
}

/// A stdio server that a knowledge file requires. Regardless of the file's origin, it runs only in
/// the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxToolServer {
    /// Its name.
    pub name: String,
    /// The program, by name or path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
}

/// The tool servers of one conversation.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// Returns the tools that are available now. Starts missing servers concurrently, each with its
    /// own timeout, and queries servers again that report a change. Servers in the sandbox wait
    /// until there is one, and restart in a new one. Dropping the future cancels the starts.
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer;

    /// Calls a tool by its offered name, or [`SEARCH_TOOLS`]. Restarts a server that has exited, up
    /// to a limit. Errors are observations. Dropping the future cancels the call.
    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation;

    /// Sets the servers that run in addition to the configured ones; replaces those of an earlier
    /// call. Ignores a server with the name of a configured one. They start at the next offer.
    async fn set_sandbox_servers(&self, servers: Vec<SandboxToolServer>);

    /// Whether there are no servers and never will be.
    fn is_empty(&self) -> bool {
        false
    }

    /// Kills all servers with their process trees.
    async fn shut_down(&self);
}

/// No tool servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoToolServers;

#[async_trait]
impl ToolServers for NoToolServers {
    async fn offer(&self, _sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer {
        ToolOffer::default()
    }

    async fn call(&self, name: &str, _arguments: &Map<String, Value>) -> Observation {
        Observation::error(
            format!("there is no tool {name}: no tool servers are configured"),
            CALL_FAILED,
        )
    }

    async fn set_sandbox_servers(&self, _servers: Vec<SandboxToolServer>) {}

    fn is_empty(&self) -> bool {
        true
    }

    async fn shut_down(&self) {}
}
