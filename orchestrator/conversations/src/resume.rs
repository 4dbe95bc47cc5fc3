//! Stored conversations, and requests to resume them.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::conversation::{LoopRecovery, ResumeOptions, State};
use engine::events::{EventLog, EventStore};
use protocol::action::MessageAction;
use protocol::record::{ConversationStarted, Limit};
use protocol::risk::ConfirmationPolicy;
use protocol::{
    Action, AgentState, ConversationId, Event, EventBody, EventId, EventSource, Observation,
    ObservationKind,
};

use crate::claim::Claim;
use crate::error::ConversationsError;

/// A stored conversation that this process has claimed and can resume.
pub struct StoredConversation {
    pub(crate) claim: Claim,
    /// Settings with which it was started. The runtime is the one of its latest sandbox, which may
    /// differ.
    pub started: ConversationStarted,
    /// State after the whole log.
    pub state: State,
    /// Names of the secrets that its agent was informed of.
    pub secrets: BTreeSet<String>,
    /// Last message of the agent.
    pub last_message: Option<EventId>,
}

/// Request to resume a conversation. The default changes nothing.
#[derive(Debug, Clone, Default)]
pub struct ResumeRequest {
    /// Message of the user.
    pub message: Option<MessageAction>,
    /// Decision on the action that awaits confirmation.
    pub decision: Option<UserDecision>,
    /// The action that the decision is about. `None` for any.
    pub decided_action: Option<EventId>,
    /// How an agent that was stopped in a loop continues. If it is `None`, the agent forgets the
    /// loop.
    pub loop_recovery: Option<LoopRecovery>,
    /// Number of additional steps. If it is `None` and the limit was reached, the initial limit is
    /// granted again.
    pub more_iterations: Option<u32>,
    /// Additional budget, in US dollars. If it is `None` and the budget was reached, the initial
    /// budget is granted again.
    pub more_budget: Option<f64>,
    /// Whether an agent that is paused or has failed remains so, and one that is stopped waits for
    /// a message.
    pub is_held: bool,
}

/// A user's decision on an action that awaits confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserDecision {
    /// The action is performed.
    Approve,
    /// The action is performed, and similar ones no longer require confirmation in this
    /// conversation.
    ApproveSimilar,
    /// The action is not performed. The agent receives the reason and continues. If the reason is
    /// empty, it waits for the user.
    Reject(String),
}

/// Returns the action that awaits confirmation, if a decision is about it: on the named action, or
/// on any.
pub(crate) fn find_decided(
    id: &ConversationId,
    state: &State,
    named: Option<EventId>,
) -> Result<EventId, ConversationsError> {
    match action_awaiting_confirmation(state) {
        None => Err(ConversationsError::NothingToDecide(id.clone())),
        Some(action) if named.is_some_and(|named| named != action) => {
            Err(ConversationsError::OtherActionAwaits {
                conversation: id.clone(),
                action,
            })
        }
        Some(action) => Ok(action),
    }
}

/// Returns the first action that awaits the user's confirmation. `None` if there is none.
pub(crate) fn action_awaiting_confirmation(state: &State) -> Option<EventId> {
    let is_awaiting = state.agent_state == AgentState::AwaitingUserConfirmation;
    state
        .awaiting_confirmation()
        .filter(|_| is_awaiting)
        .map(|(_, pending)| pending.action)
}

impl StoredConversation {
    pub(crate) async fn read(
        store: Arc<dyn EventStore>,
        claim: Claim,
    ) -> Result<Self, ConversationsError> {
        let (_, events) = EventLog::open(store, claim.id().clone()).await?;
        let state = State::fold(events.iter().map(Arc::as_ref));
        let Some(mut started) = state.started.clone() else {
            return Err(ConversationsError::Unknown(claim.id().clone()));
        };
        if let Some(lease) = &state.latest_lease {
            started.runtime.clone_from(&lease.runtime);
        }
        let secrets = events.iter().filter_map(|event| match &event.body {
            EventBody::Observation(Observation {
                kind: ObservationKind::Recall(recall),
                ..
            }) => Some(recall.custom_secrets_descriptions.keys().cloned()),
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

    /// Returns the claim on the conversation.
    pub fn claim(&mut self) -> &mut Claim {
        &mut self.claim
    }

    /// Checks that the state has the action or the loop that a request refers to.
    ///
    /// # Errors
    /// [`ConversationsError::NothingToDecide`], [`ConversationsError::OtherActionAwaits`] or
    /// [`ConversationsError::NotInLoop`].
    pub fn check(&self, request: &ResumeRequest) -> Result<(), ConversationsError> {
        if request.decision.is_some() {
            find_decided(self.claim.id(), &self.state, request.decided_action)?;
        }
        if request.loop_recovery.is_some() && self.state.own.stuck.detected_loop().is_none() {
            return Err(ConversationsError::NotInLoop(self.claim.id().clone()));
        }
        Ok(())
    }

    /// Whether the conversation continues only with a message of the user.
    pub fn awaits_message(&self) -> bool {
        let has_ended = matches!(
            self.state.agent_state,
            AgentState::Finished | AgentState::Rejected | AgentState::AwaitingUserInput
        );
        has_ended && !self.state.has_pending_actions()
    }

    /// Returns the budget after the request, in US dollars. `None` if there is none.
    pub fn max_budget(&self, request: &ResumeRequest) -> Option<f64> {
        self.new_max_budget(request).or(self.state.max_budget)
    }

    /// Whether the agent has to be resumed, or the request changes a limit.
    pub(crate) fn needs_resume(&self, request: &ResumeRequest) -> bool {
        let is_held = matches!(
            self.state.agent_state,
            AgentState::Stopped | AgentState::Error | AgentState::Paused
        );
        is_held && !request.is_held
            || request.more_iterations.is_some()
            || request.more_budget.is_some()
    }

    /// Whether the agent is at rest, and waits for a message once the conversation is opened.
    pub(crate) fn awaits_start(&self, request: &ResumeRequest) -> bool {
        let is_at_rest = matches!(
            self.state.agent_state,
            AgentState::AwaitingUserInput
                | AgentState::Error
                | AgentState::Finished
                | AgentState::Paused
                | AgentState::Rejected
                | AgentState::Stopped
        );
        request.is_held && is_at_rest && !self.state.has_pending_actions()
    }

    pub(crate) fn resume_options(
        &self,
        request: &ResumeRequest,
        confirmation: ConfirmationPolicy,
    ) -> ResumeOptions {
        ResumeOptions {
            max_iterations: self.new_max_iterations(request),
            max_budget: self.new_max_budget(request),
            confirmation: Some(confirmation),
        }
    }

    fn new_max_iterations(&self, request: &ResumeRequest) -> Option<u32> {
        let is_reached = self.state.limit_reached == Some(Limit::Iterations);
        let more = request
            .more_iterations
            .or(is_reached.then_some(self.started.max_iterations));
        more.map(|more| self.state.iterations.saturating_add(more))
    }

    fn new_max_budget(&self, request: &ResumeRequest) -> Option<f64> {
        let initial = self
            .started
            .max_budget
            .filter(|_| self.state.limit_reached == Some(Limit::Budget));
        let more = request.more_budget.or(initial);
        more.map(|more| self.state.metrics.accumulated_cost + more)
    }
}
