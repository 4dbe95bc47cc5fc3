//! An agent that another one handed a task to.

use std::collections::BTreeMap;

use protocol::action::DelegateAction;
use protocol::metrics::Metrics;
use protocol::tool_call::ToolCallMetadata;
use protocol::{Event, EventId, SessionName};

use super::run::Run;

/// Which agent of a conversation: by the action that handed it its task; nothing: the conversation's own.
pub type AgentId = Option<EventId>;

/// An agent at work on a task that another one handed on. It ends with exactly one observation, the outcome of that
/// action.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    /// Who waits for it.
    pub parent: AgentId,
    /// How many have handed on before it; the conversation's own agent has 0.
    pub depth: u32,
    /// The agent's name.
    pub agent: String,
    /// What it does.
    pub run: Run,
    /// Steps taken, which count for the conversation too.
    pub iterations: u32,
    /// What its calls to the model have cost, which counts for the conversation too.
    pub metrics: Metrics,
    /// The parent's call that its outcome answers.
    pub tool_call_metadata: Option<ToolCallMetadata>,
    /// Whether it was told its prompt and its task.
    pub is_briefed: bool,
}

impl Child {
    /// What an action begins. The shell is one that none of the others at work has: as it was left by whoever had it.
    pub(super) fn new(event: &Event, action: &DelegateAction, others: &BTreeMap<EventId, Self>) -> Self {
        let parent = event.delegation;
        let above = parent.and_then(|parent| others.get(&parent)).map_or(0, |parent| parent.depth);
        let is_free = |session: &SessionName| others.values().all(|other| other.run.session != *session);
        let mut sessions =
            (1_u64..).map_while(|number| SessionName::try_from(format!("agent-{number}")).ok());
        let session = sessions.find(is_free).unwrap_or_default();
        Self {
            parent,
            depth: above + 1,
            agent: action.agent.clone(),
            run: Run { session, ..Run::default() },
            iterations: 0,
            metrics: Metrics::default(),
            tool_call_metadata: event.tool_call_metadata.clone(),
            is_briefed: false,
        }
    }

    /// Counts a call of its own.
    pub(super) fn count(&mut self, call: &Metrics, is_step: bool) {
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
