//! On what terms a stored conversation is resumed.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::conversation::{Recovery, State, Terms};
use engine::events::{EventLog, EventStore};
use protocol::record::{ConversationStarted, Limit};
use protocol::risk::ConfirmationPolicy;
use protocol::{Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind};

use crate::claim::Claim;
use crate::error::ConversationsError;

/// A stored conversation that this process has claimed, and can resume.
pub struct StoredConversation {
    pub(crate) claim: Claim,
    /// What the log says that it was started as.
    pub started: ConversationStarted,
    /// What the log folds to.
    pub state: State,
    /// The names of the secrets that its agent was informed of.
    pub secrets: BTreeSet<String>,
    /// What the agent said last.
    pub last_message: Option<EventId>,
}

/// What the user has changed or said to resume a conversation. The default only continues it.
#[derive(Debug, Clone, Default)]
pub struct ResumeRequest {
    /// What the user says.
    pub message: Option<String>,
    /// The user's decision on the action that waits for it.
    pub decision: Option<Decision>,
    /// How an agent that was stopped in a loop continues. `None` only makes it forget the loop.
    pub loop_recovery: Option<Recovery>,
    /// How many more steps the agent may take. `None`: after that limit was reached, as many again.
    pub more_iterations: Option<u32>,
    /// How much more the model's calls may cost, in US dollars. `None`: after that limit was reached, as much again.
    pub more_budget: Option<f64>,
}

/// A user's decision on an action that waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is performed.
    Approve,
    /// It is performed, and those like it are no longer asked about in this conversation.
    ApproveSimilar,
    /// It is not performed. The agent receives this reason and continues; without a reason it waits for the user.
    Reject(String),
}

impl StoredConversation {
    pub(crate) async fn read(store: Arc<dyn EventStore>, claim: Claim) -> Result<Self, ConversationsError> {
        let (_, events) = EventLog::open(store, claim.id().clone()).await?;
        let state = State::fold(events.iter().map(Arc::as_ref));
        let Some(started) = state.started.clone() else {
            return Err(ConversationsError::Unknown(claim.id().clone()));
        };
        let secrets = events.iter().filter_map(|event| match &event.body {
            EventBody::Observation(Observation { kind: ObservationKind::Recall(recall), .. }) => {
                Some(recall.custom_secrets_descriptions.keys().cloned())
            }
            _ => None,
        });
        let is_message = |event: &&Arc<Event>| {
            let is_message = matches!(&event.body, EventBody::Action(Action::Message(_)));
            is_message && event.source == EventSource::Agent && event.delegation.is_none()
        };
        Ok(Self {
            secrets: secrets.flatten().collect(),
            last_message: events.iter().rev().find(is_message).map(|event| event.id),
            claim,
            started,
            state,
        })
    }

    /// The claim on the conversation.
    pub fn claim(&mut self) -> &mut Claim {
        &mut self.claim
    }

    /// Checks that there is what a request is about.
    ///
    /// # Errors
    /// [`ConversationsError::NothingToDecide`] or [`ConversationsError::NotInLoop`].
    pub fn check(&self, request: &ResumeRequest) -> Result<(), ConversationsError> {
        let is_asked = self.state.agent_state == AgentState::AwaitingUserConfirmation;
        if request.decision.is_some() && !is_asked {
            return Err(ConversationsError::NothingToDecide(self.claim.id().clone()));
        }
        if request.loop_recovery.is_some() && self.state.own.stuck.found().is_none() {
            return Err(ConversationsError::NotInLoop(self.claim.id().clone()));
        }
        Ok(())
    }

    /// Whether only a message of the user makes it continue.
    pub fn awaits_message(&self) -> bool {
        let asks_or_done = matches!(
            self.state.agent_state,
            AgentState::Finished | AgentState::Rejected | AgentState::AwaitingUserInput
        );
        asks_or_done && !self.state.is_underway()
    }

    /// The limit of costs after the request, in US dollars. `None` if there is none.
    pub fn max_budget(&self, request: &ResumeRequest) -> Option<f64> {
        self.new_max_budget(request).or(self.state.max_budget)
    }

    /// Whether the agent rests until it is resumed.
    pub(crate) fn needs_resume(&self, request: &ResumeRequest) -> bool {
        let rests =
            matches!(self.state.agent_state, AgentState::Stopped | AgentState::Error | AgentState::Paused);
        rests || request.more_iterations.is_some() || request.more_budget.is_some()
    }

    pub(crate) fn terms(&self, request: &ResumeRequest, confirmation: ConfirmationPolicy) -> Terms {
        Terms {
            max_iterations: self.new_max_iterations(request),
            max_budget: self.new_max_budget(request),
            confirmation: Some(confirmation),
        }
    }

    fn new_max_iterations(&self, request: &ResumeRequest) -> Option<u32> {
        let is_reached = self.state.limit_reached == Some(Limit::Iterations);
        let more = request.more_iterations.or(is_reached.then_some(self.started.max_iterations));
        more.map(|more| self.state.iterations.saturating_add(more))
    }

    fn new_max_budget(&self, request: &ResumeRequest) -> Option<f64> {
        let again = self.started.max_budget.filter(|_| self.state.limit_reached == Some(Limit::Budget));
        let more = request.more_budget.or(again);
        more.map(|more| self.state.metrics.accumulated_cost + more)
    }
}
