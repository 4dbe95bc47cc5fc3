//! Agents: what looks at a conversation and decides on the next action.
//!
//! An agent acts on nothing. It holds no state either: what it knows is the view it is given.

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
pub use team::{Team, TeamMember};

/// Decides on the next action.
#[async_trait]
pub trait Agent: Send + Sync {
    /// The name in configuration and in the log.
    fn name(&self) -> &str;

    /// The prompt and the tools that a conversation begins with.
    fn system(&self) -> SystemAction;

    /// What it can call beside those tools, where the sandbox has what each needs.
    fn sandbox_tools(&self) -> Vec<SandboxTool> {
        Vec::new()
    }

    /// Takes one step. Dropping the future abandons it.
    ///
    /// # Errors
    /// The model's, when it was asked and failed.
    async fn step(
        &self,
        view: &View,
        llm: &dyn Llm,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<AgentStep, LlmError>;
}

/// What an agent decided.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStep {
    /// An action; or an error observation, when the model's call cannot become one.
    pub body: EventBody,
    /// How long the action may take, in seconds.
    pub timeout: Option<f64>,
    /// The model's call that became the body.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// What asking the model took, if it was asked for this step.
    pub call: Option<ModelCall>,
    /// Where the body hands on a task: what the agent that it goes to is told first. Agents leave it out.
    pub briefing: Option<SystemAction>,
    /// Why a security analyzer gave the body its risk; empty if none did. Agents leave it out.
    pub risk_reason: String,
}

impl AgentStep {
    /// A step that no call to the model was made for.
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

/// What asking the model took.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Its tokens.
    pub usage: TokenUsage,
    /// Its price in US dollars; nothing when the price is unknown.
    pub cost: Option<f64>,
    /// From sending to the last byte.
    pub latency: Duration,
}

impl From<&Completion> for ModelCall {
    fn from(completion: &Completion) -> Self {
        Self { usage: completion.usage.clone(), cost: completion.cost, latency: completion.latency }
    }
}

impl ModelCall {
    /// Adds the call to a conversation's totals. `at` in seconds since the epoch.
    pub fn record_in(&self, metrics: &mut Metrics, at: f64) {
        let model = &self.usage.model;
        let cost = self.cost.map(|cost| Cost { model: model.clone(), cost, timestamp: at });
        let latency = ResponseLatency {
            model: model.clone(),
            latency: self.latency.as_secs_f64(),
            response_id: self.usage.response_id.clone(),
        };
        metrics.record(self.usage.clone(), cost, latency);
    }
}
