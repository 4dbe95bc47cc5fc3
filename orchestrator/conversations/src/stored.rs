//! Stored conversations that this process has claimed.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::conversation::State;
use engine::events::{EventLog, EventStore};
use protocol::record::{ConversationStarted, Limit};
use protocol::{
    Action, AgentState, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
    UserCommand,
};

use crate::checks;
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

    /// Checks that the conversation has the action or the loop that a command is about.
    ///
    /// # Errors
    /// [`ConversationsError::NothingToDecide`], [`ConversationsError::OtherActionAwaits`] or
    /// [`ConversationsError::NotInLoop`].
    pub fn check(&self, command: &UserCommand) -> Result<(), ConversationsError> {
        checks::check(self.claim.id(), &self.state, command)
    }

    /// Whether the agent continues only if the user resumes it. Then the policies of today's
    /// configuration apply.
    pub fn is_held(&self) -> bool {
        matches!(
            self.state.agent_state,
            AgentState::Stopped | AgentState::Error | AgentState::Paused
        )
    }

    /// Returns the initial budget, in US dollars, if a budget is spent.
    pub fn spent_budget(&self) -> Option<f64> {
        let is_spent = self.state.limit_reached == Some(Limit::Budget);
        self.started.max_budget.filter(|_| is_spent)
    }

    /// Whether the conversation continues only with a message of the user.
    pub fn awaits_message(&self) -> bool {
        let has_ended = matches!(
            self.state.agent_state,
            AgentState::Finished | AgentState::Rejected | AgentState::AwaitingUserInput
        );
        has_ended && !self.state.has_pending_actions()
    }
}
