//! The trait of tool servers: programs whose tools a model may call, such as MCP servers.
//!
//! Servers become available late: those in the sandbox once it exists, others once they respond. Therefore the first
//! `system` event of a log holds only the agent's own tools. The tools of servers are logged as a `system` event of the
//! environment, without a prompt, once the servers are ready and whenever the tools change. The latest one is valid
//! ([`View::offered_tools`]). A resumed conversation has its tools before the servers run again, and the agent keeps no
//! state. A failed server is an `error` observation of the environment, and fails nothing else.
//!
//! The conversation calls [`ToolServers::offer`] before each [`ToolServers::call`], and before each step that starts a
//! new response. It appends the events that [`announce`] returns. `offer` has timeouts, so that no server blocks the
//! conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use protocol::action::SystemAction;
use protocol::{Action, EventBody, Observation, ObservationKind};
use serde_json::{Map, Value};

use crate::llm::Tool;
use crate::sandbox::Sandbox;
use crate::view::View;

/// The `error_id` of the observation of a server without tools.
pub const SERVER_FAILED: &str = "MCP$SERVER_FAILED";

/// The `error_id` of the observation of a failed call.
pub const CALL_FAILED: &str = "MCP$CALL_FAILED";

/// The tools that servers offer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOffer {
    /// The tools, under names that providers accept and that differ from the agent's own tools.
    pub tools: Vec<Tool>,
    /// The failed servers.
    pub failures: Vec<ToolServerFailure>,
    /// Why the agent cannot work: a tool that it requires and the sandbox does not support. Human-readable.
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

/// A stdio server that a knowledge file requires. Regardless of the file's origin, it runs only in the sandbox.
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
    /// Returns the tools that are available now. Starts missing servers concurrently, each with its own timeout, and queries
    /// servers again that report a change. Servers in the sandbox wait until there is one, and restart in a new one. Dropping
    /// the future cancels the starts.
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer;

    /// Calls a tool by its offered name. Restarts a server that has exited, up to a limit. Errors are observations. Dropping
    /// the future cancels the call.
    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation;

    /// Sets the servers that run in addition to the configured ones; replaces those of an earlier call. Ignores a server
    /// with the name of a configured one. They start at the next offer.
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
        Observation::error(format!("there is no tool {name}: no tool servers are configured"), CALL_FAILED)
    }

    async fn set_sandbox_servers(&self, _servers: Vec<SandboxToolServer>) {}

    fn is_empty(&self) -> bool {
        true
    }

    async fn shut_down(&self) {}
}

/// Returns the events to append for an offer, in order, with the environment as their source. Omits those that the log
/// already holds, so that repeated calls append nothing twice.
pub fn announce(view: &View, offer: &ToolOffer) -> Vec<EventBody> {
    let mut events = Vec::new();
    if view.offered_tools() != offer.tools {
        let tools = offer.tools.iter().map(Tool::to_stored).collect();
        events.push(Action::from(SystemAction { tools: Some(tools), ..Default::default() }).into());
    }
    let failures = offer.failures.iter().map(|ToolServerFailure { server, reason }| {
        Observation::error(format!("the MCP server {server}: {reason}"), SERVER_FAILED)
    });
    events.extend(failures.filter(|failure| !is_logged(view, failure)).map(EventBody::from));
    events
}

fn is_logged(view: &View, failure: &Observation) -> bool {
    view.notices().any(|event| match &event.body {
        EventBody::Observation(logged) => {
            matches!(logged.kind, ObservationKind::Error(_)) && logged.content == failure.content
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use protocol::{Event, EventId, EventSource};
    use serde_json::json;

    use super::*;
    use crate::testing::timestamp;

    fn tool(name: &str) -> Tool {
        let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        Tool { name: name.into(), description: "Echoes.".into(), parameters }
    }

    fn log(bodies: &[EventBody]) -> View {
        let event = |(id, body): (u64, &EventBody)| {
            Arc::new(Event::new(EventId(id), timestamp(), EventSource::Environment, body.clone()))
        };
        View::from_events((0..).zip(bodies).map(event).collect())
    }

    #[test]
    fn offer_is_logged_once_and_restored_from_the_log() {
        let failure = ToolServerFailure { server: "git".into(), reason: "it does not answer".into() };
        let tools = vec![tool("echo"), tool("add")];
        let offer = ToolOffer { tools, failures: vec![failure], obstacle: None };
        let mut events = announce(&log(&[]), &offer);
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(log(&events).offered_tools(), offer.tools);
        assert_eq!(announce(&log(&events), &offer), []);

        let fewer = ToolOffer { tools: vec![tool("echo")], ..ToolOffer::default() };
        events.extend(announce(&log(&events), &fewer));
        assert_eq!(events.len(), 3);
        assert_eq!(log(&events).offered_tools(), fewer.tools);
        assert_eq!(announce(&log(&[]), &ToolOffer::default()), []);
    }
}
