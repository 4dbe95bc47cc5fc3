//! Agents decide on the next action of a conversation.
//!
//! An agent performs no actions and holds no state: it decides from the view that it is given.

mod codeact;
mod definition;
mod dummy;
mod file;
mod task_list;
mod team;
pub mod tools;

use std::time::Duration;

use async_trait::async_trait;
use protocol::EventBody;
use protocol::action::SystemAction;
use protocol::metrics::{Cost, Metrics, ResponseLatency, TokenUsage};
use protocol::tool_call::ToolCallMetadata;

use crate::llm::{Completion, Llm, LlmError, LlmProgress};
use crate::sandbox_tools::SandboxTool;
use crate::view::View;

pub use codeact::CodeActAgent;
pub use definition::{AgentDefinition, DelegateAgent, Prompt};
pub use dummy::DummyAgent;
pub use file::{AgentFile, AgentFileError, MAX_AGENT_FILE_BYTES};
pub use task_list::update_task_list;
pub use team::{Agents, Team, TeamMember};

/// Decides on the next action.
#[async_trait]
pub trait Agent: Send + Sync {
    /// Returns the name in the configuration and in the log.
    fn name(&self) -> &str;

    /// Returns the initial prompt and tools.
    fn system(&self) -> SystemAction;

    /// Returns further tools, which are offered only if the sandbox supports them.
    fn sandbox_tools(&self) -> Vec<SandboxTool> {
        Vec::new()
    }

    /// Decides on the next step. Dropping the future cancels it.
    ///
    /// # Errors
    /// The call of the model failed.
    async fn step(
        &self,
        view: &View,
        llm: &dyn Llm,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError>;
}

/// A step that an agent decided on.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStep {
    /// An action, or an error observation for an invalid tool call.
    pub body: EventBody,
    /// The timeout of the action, in seconds.
    pub timeout: Option<f64>,
    /// The tool call that the body results from.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// The model call of this step, if any.
    pub call: Option<ModelCall>,
    /// For a delegation: the initial prompt of the other agent. Not set by agents.
    pub briefing: Option<SystemAction>,
    /// The security analyzer's reason for the risk; empty if there is none. Not set by agents.
    pub risk_reason: String,
}

impl AgentStep {
    /// Creates a step without a model call.
    pub fn new(body: impl Into<EventBody>) -> Self {
        Self {
            body: body.into(),
            timeout: None,
            tool_call_metadata: None,
            call: None,
            briefing: None,
            risk_reason: String::new(),
        }
    }
}

/// Usage, cost and latency of a model call.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Its token usage.
    pub usage: TokenUsage,
    /// Its cost in US dollars. `None` if the price is unknown.
    pub cost: Option<f64>,
    /// From sending the request to receiving the last byte.
    pub latency: Duration,
}

impl From<&Completion> for ModelCall {
    fn from(completion: &Completion) -> Self {
        Self {
            usage: completion.usage.clone(),
            cost: completion.cost,
            latency: completion.latency,
        }
    }
}

impl ModelCall {
    /// Adds the call to a conversation's totals. `at` is in seconds since the Unix epoch.
    pub fn record_in(&self, metrics: &mut Metrics, at: f64) {
        let model = &self.usage.model;
        let cost = self.cost.map(|cost| Cost {
            model: model.clone(),
            cost,
            timestamp: at,
        });
        let latency = ResponseLatency {
            model: model.clone(),
            latency: self.latency.as_secs_f64(),
            response_id: self.usage.response_id.clone(),
        };
        metrics.record(self.usage.clone(), cost, latency);
    }
}
