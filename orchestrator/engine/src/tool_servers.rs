//! The seam to tool servers: programs beside the agent whose tools a model may call.
//!
//! Tools may come late: a server in the sandbox starts when there is one, a server elsewhere when it answers. So the
//! first `system` event of a log holds the agent's own tools only. What servers offer is a `system` event of the
//! environment, without a prompt, that is appended when the servers are ready and again whenever it changes; the latest
//! one holds ([`View::offered_tools`]). A resumed conversation finds them there, before any server runs again, and the
//! agent has nothing to remember. That a server fails is an `error` observation of the environment, and ends nothing.
//!
//! Who owns the conversation calls [`ToolServers::offer`] before a step that follows no call of the same response, and
//! before each [`ToolServers::call`]; it appends what [`announce`] says. Each call of `offer` is bounded in time, so no server keeps a conversation waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use protocol::action::SystemAction;
use protocol::{Action, EventBody, Observation, ObservationKind};
use serde_json::{Map, Value};

use crate::llm::Tool;
use crate::sandbox::Sandbox;
use crate::view::View;

/// The observation's `error_id` of a server that offers no tools.
pub const SERVER_FAILED: &str = "MCP$SERVER_FAILED";

/// The observation's `error_id` of a call that no server answered.
pub const CALL_FAILED: &str = "MCP$CALL_FAILED";

/// What tool servers offer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolOffer {
    /// Their tools, under names that models' providers take and that no tool of the agent has.
    pub tools: Vec<Tool>,
    /// What is missing, and why.
    pub failures: Vec<ToolServerFailure>,
    /// What the agent's own definition wants and its sandbox cannot perform, for people: the agent does not work so.
    pub obstacle: Option<String>,
}

/// A server that offers less than it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolServerFailure {
    /// Its name in the configuration.
    pub server: String,
    /// Why, for people; in one line, without secrets.
    pub reason: String,
}

/// A server that a knowledge file asks for: a program that speaks over its stdin and stdout. It runs in the sandbox only,
/// whoever wrote the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxToolServer {
    /// Its name.
    pub name: String,
    /// The program, by name or path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
}

/// The tool servers of one conversation.
#[async_trait]
pub trait ToolServers: Send + Sync {
    /// What is offered now. Starts, all at once, what does not run yet and may, each within its own time; asks those anew
    /// that say that their tools have changed. Without a sandbox the servers in it are left for later; with another one
    /// than before they start again. Dropping the future abandons what is being started.
    async fn offer(&self, sandbox: Option<&Arc<dyn Sandbox>>) -> ToolOffer;

    /// Calls a tool by the name it is offered under. A server that has died is started again, within bounds. Whatever
    /// goes wrong is in the observation. Dropping the future cancels the call.
    async fn call(&self, name: &str, arguments: &Map<String, Value>) -> Observation;

    /// Takes these servers beside the configured ones, in the place of those that were taken before. One that is named like
    /// a configured server is left out. They start at the next offer.
    async fn set_sandbox_servers(&self, servers: Vec<SandboxToolServer>);

    /// Whether there are none, and none can come.
    fn is_empty(&self) -> bool {
        false
    }

    /// Ends every server with all that came of it.
    async fn shut_down(&self);
}

/// For conversations without tool servers.
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

/// The events that a log lacks of an offer, in order, to be appended with the environment as their source. None when it
/// holds them all: whoever asks often appends nothing twice.
pub fn announce(view: &View, offer: &ToolOffer) -> Vec<EventBody> {
    let mut news = Vec::new();
    if view.offered_tools() != offer.tools {
        let tools = offer.tools.iter().map(Tool::to_openai).collect();
        let system = SystemAction {
            content: String::new(),
            tools: Some(tools),
            openhands_version: None,
            agent_class: None,
        };
        news.push(Action::from(system).into());
    }
    let failures = offer.failures.iter().map(|ToolServerFailure { server, reason }| {
        Observation::error(format!("the MCP server {server}: {reason}"), SERVER_FAILED)
    });
    news.extend(failures.filter(|failure| !is_told(view, failure)).map(EventBody::from));
    news
}

fn is_told(view: &View, failure: &Observation) -> bool {
    view.notices().any(|event| match &event.body {
        EventBody::Observation(told) => {
            matches!(told.kind, ObservationKind::Error(_)) && told.content == failure.content
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
        let mut told = announce(&log(&[]), &offer);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(log(&told).offered_tools(), offer.tools);
        assert_eq!(announce(&log(&told), &offer), []);

        let fewer = ToolOffer { tools: vec![tool("echo")], ..ToolOffer::default() };
        told.extend(announce(&log(&told), &fewer));
        assert_eq!(told.len(), 3);
        assert_eq!(log(&told).offered_tools(), fewer.tools);
        assert_eq!(announce(&log(&[]), &ToolOffer::default()), []);
    }
}
