//! The state of a conversation: the fold of its log, and nothing else.

use protocol::metrics::Metrics;
use protocol::record::{ConversationStarted, Limit, SandboxLeased};
use protocol::sandbox_api::{ActionRequest, SandboxAction};
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, AgentState, Body, Event, EventId, EventSource, ObservationKind, Record};

/// What the log says. The same log always folds to the same state.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Where the log ends.
    pub next_id: EventId,
    /// What the conversation was asked to be; nothing before it begins.
    pub started: Option<ConversationStarted>,
    /// What the agent does.
    pub agent_state: AgentState,
    /// Steps taken.
    pub iterations: u32,
    /// Steps that may be taken.
    pub max_iterations: u32,
    /// The limit that stopped the agent, until it goes on.
    pub limit_reached: Option<Limit>,
    /// What the model's calls have cost.
    pub metrics: Metrics,
    /// The one action that has no ending yet.
    pub pending: Option<Pending>,
    /// The sandbox.
    pub lease: Option<SandboxLeased>,
    /// The user's latest message.
    pub last_user_message: Option<EventId>,
}

/// An action without an ending.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// The action.
    pub action: EventId,
    /// What the sandbox is asked.
    pub request: ActionRequest,
    /// The model's call that it answers.
    pub tool_call_metadata: Option<ToolCallMetadata>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            next_id: EventId::FIRST,
            started: None,
            agent_state: AgentState::Loading,
            iterations: 0,
            max_iterations: 0,
            limit_reached: None,
            metrics: Metrics::default(),
            pending: None,
            lease: None,
            last_user_message: None,
        }
    }
}

impl State {
    /// The state after a whole log.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        events.into_iter().for_each(|event| state.apply(event));
        state
    }

    /// The state after one more event.
    pub fn apply(&mut self, event: &Event) {
        self.next_id = event.id.next();
        if let Some(metrics) = &event.llm_metrics {
            self.metrics.clone_from(metrics);
            self.iterations += 1;
        }
        match &event.body {
            Body::Action(action) => self.apply_action(event, action),
            Body::Observation(observation) => {
                if event.cause.is_some() && event.cause == self.pending.as_ref().map(|pending| pending.action)
                {
                    self.pending = None;
                }
                if let ObservationKind::AgentStateChanged(changed) = &observation.kind {
                    self.agent_state = changed.agent_state;
                }
            }
            Body::Record(record) => self.apply_record(record),
        }
    }

    /// Whether the agent is taking a step: it runs, and no action keeps it waiting.
    pub fn is_stepping(&self) -> bool {
        self.agent_state == AgentState::Running && self.pending.is_none()
    }

    fn apply_action(&mut self, event: &Event, action: &Action) {
        match (event.source, action) {
            (EventSource::User, Action::Message(_)) => self.last_user_message = Some(event.id),
            (EventSource::Agent, action) => {
                if let Ok(action) = SandboxAction::try_from(action.clone()) {
                    self.pending = Some(Pending {
                        action: event.id,
                        request: ActionRequest::new(action, event.timeout),
                        tool_call_metadata: event.tool_call_metadata.clone(),
                    });
                }
            }
            _ => {}
        }
    }

    fn apply_record(&mut self, record: &Record) {
        match record {
            Record::ConversationStarted(started) => {
                self.max_iterations = started.max_iterations;
                self.started = Some(started.clone());
            }
            Record::SandboxLeased(lease) => self.lease = Some(lease.clone()),
            Record::SandboxReleased(_) => self.lease = None,
            Record::LimitReached(reached) => self.limit_reached = Some(reached.limit),
            Record::LimitExtended(extended) => {
                self.limit_reached = None;
                match extended.limit {
                    Limit::Iterations => self.max_iterations = extended.to,
                }
            }
        }
    }
}
