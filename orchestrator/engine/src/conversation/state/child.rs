//! An agent that performs a delegated task.

use std::collections::BTreeMap;

use protocol::action::DelegateAction;
use protocol::metrics::Metrics;
use protocol::tool_call::ToolCallMetadata;
use protocol::{Event, EventId, SessionName};

use super::run::AgentRun;

/// Id of an agent: the action that delegated its task. `None` for the conversation's own agent.
pub type AgentId = Option<EventId>;

/// An agent that performs a delegated task. It ends with exactly one observation, the terminal
/// event of that action.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildAgent {
    /// The agent that delegated the task and waits for its outcome.
    pub parent: AgentId,
    /// Delegation depth. The conversation's own agent has depth 0.
    pub depth: u32,
    /// The agent's name.
    pub agent: String,
    /// Its action, loops and tasks.
    pub run: AgentRun,
    /// Steps taken. They count toward the conversation's limit too.
    pub iterations: u32,
    /// Cost and tokens of its model calls. They count toward the conversation's budget too.
    pub metrics: Metrics,
    /// The parent's tool call that its outcome completes.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// Whether the log has its prompt and its task.
    pub is_briefed: bool,
}

impl ChildAgent {
    /// Creates the agent of a delegated task. Its shell is one that no other agent uses now; an
    /// agent that has ended may have used it before.
    pub(super) fn new(
        event: &Event,
        action: &DelegateAction,
        others: &BTreeMap<EventId, Self>,
    ) -> Self {
        let parent = event.delegation;
        let parent_depth = parent
            .and_then(|parent| others.get(&parent))
            .map_or(0, |parent| parent.depth);
        let is_free =
            |session: &SessionName| others.values().all(|other| other.run.session != *session);
        let mut sessions =
            (1_u64..).map_while(|number| SessionName::try_from(format!("agent-{number}")).ok());
        let session = sessions.find(is_free).unwrap_or_default();
        Self {
            parent,
            depth: parent_depth + 1,
            agent: action.agent.clone(),
            run: AgentRun {
                session,
                ..AgentRun::default()
            },
            iterations: 0,
            metrics: Metrics::default(),
            tool_call_metadata: event.tool_call_metadata.clone(),
            is_briefed: false,
        }
    }

    /// Counts one of its model calls.
    pub(super) fn count_call(&mut self, call: &Metrics, is_step: bool) {
        self.iterations += u32::from(is_step);
        let costs = call.costs.iter().map(|cost| cost.cost);
        self.metrics.accumulated_cost += costs.sum::<f64>();
        for usage in &call.token_usages {
            let total = &mut self.metrics.accumulated_token_usage;
            total.prompt_tokens += usage.prompt_tokens;
            total.completion_tokens += usage.completion_tokens;
            total.cache_read_tokens += usage.cache_read_tokens;
            total.cache_write_tokens += usage.cache_write_tokens;
        }
    }
}
