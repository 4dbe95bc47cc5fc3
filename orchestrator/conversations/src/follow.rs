//! Follows a running conversation: its events, live updates, and waits for the user.
//!
//! A follower only reads: a conversation behaves the same with any number of them. A slow one can
//! miss live output, which the observation repeats, but no event.

use std::sync::Arc;

use engine::conversation::{Conversation, State};
use engine::events::Cursor;
use protocol::update::{RunOutcome, WaitState};
use protocol::{Action, AgentState, ConversationUpdate, Event, EventBody, EventId, EventSource};

use crate::checks::action_awaiting_confirmation;
use crate::error::ConversationsError;
use crate::update::UpdateQueue;

/// Returns the outcome of a conversation that is idle.
pub fn run_outcome(state: &State) -> RunOutcome {
    match state.agent_state {
        AgentState::Finished => RunOutcome::Finished,
        AgentState::Error if state.limit_reached.is_some() => RunOutcome::LimitReached,
        AgentState::AwaitingUserInput | AgentState::AwaitingUserConfirmation => {
            RunOutcome::AwaitingUser
        }
        _ => RunOutcome::Failed,
    }
}

/// Returns how a conversation waits for its user, if it does.
pub(crate) fn wait_state(state: &State) -> WaitState {
    WaitState {
        agent_state: state.agent_state,
        is_idle: is_idle(state),
        outcome: run_outcome(state),
        action: action_awaiting_confirmation(state),
    }
}

/// Follows one running conversation.
pub struct Follower {
    conversation: Arc<Conversation>,
    events: Cursor,
    queue: UpdateQueue,
    /// The event after the last one that is queued.
    next: EventId,
    /// The state when waiting was last reported.
    reported_waiting: Option<Arc<State>>,
    answer: Option<String>,
}

impl Follower {
    pub(crate) async fn new(
        conversation: Arc<Conversation>,
        from: EventId,
    ) -> Result<Self, ConversationsError> {
        let mut follower = Self {
            events: conversation.log().cursor(from),
            queue: UpdateQueue::new(conversation.subscribe()),
            conversation,
            next: from,
            reported_waiting: None,
            answer: None,
        };
        follower.queue_running_actions(from).await?;
        Ok(follower)
    }

    /// Returns the conversation's current state.
    pub fn state(&self) -> Arc<State> {
        self.conversation.state()
    }

    /// Returns the state in which the conversation waited at the last
    /// [`ConversationUpdate::Waiting`], else the current one.
    pub fn waiting_state(&self) -> Arc<State> {
        self.reported_waiting
            .clone()
            .unwrap_or_else(|| self.state())
    }

    /// Returns the state after an event has been applied. An event is in the log before that.
    pub async fn state_with(&self, event: EventId) -> Arc<State> {
        self.conversation
            .wait_for(|state| state.next_id > event)
            .await
    }

    /// Whether the conversation's task has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.conversation.is_closed()
    }

    /// Whether an update is queued, so that [`next`](Self::next) returns immediately.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether all events are reported and the conversation is idle.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        self.queue.is_empty() && self.next == state.next_id && is_idle(&state)
    }

    /// Returns the agent's last message to the user. `None` if it sent none after the user's.
    pub fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    /// Waits for the next update. Cancel-safe.
    ///
    /// # Errors
    /// [`ConversationsError::Store`] if the log cannot be read.
    pub async fn next(&mut self) -> Result<ConversationUpdate<Arc<Event>>, ConversationsError> {
        loop {
            let state = self.conversation.state();
            if let Some(update) = self.queue.pop() {
                if let ConversationUpdate::Event(event) = &update {
                    track_answer(event, &mut self.answer);
                }
                return Ok(update);
            }
            let is_reported = self
                .reported_waiting
                .as_ref()
                .is_some_and(|reported| reported.next_id == state.next_id);
            if self.next == state.next_id && !is_reported {
                let waiting = wait_state(&state);
                if waiting.is_idle || waiting.action.is_some() {
                    self.reported_waiting = Some(state);
                    return Ok(ConversationUpdate::Waiting(waiting));
                }
            }
            tokio::select! {
                biased;
                events = self.events.next() => self.enqueue(events?),
                () = self.queue.receive_live() => {}
                // The state is published after its events. Without this, the last state change
                // would be missed.
                now = self.conversation.wait_for(|now| now.next_id > state.next_id) => {
                    if now.next_id == state.next_id {
                        return Ok(ConversationUpdate::Closed {});
                    }
                }
            }
        }
    }

    /// Queues running actions of an earlier process, so that their output follows them.
    async fn queue_running_actions(&mut self, from: EventId) -> Result<(), ConversationsError> {
        let state = self.conversation.state();
        let running = state
            .pending()
            .filter(|(_, pending)| state.is_performing(pending));
        for (_, pending) in running.filter(|(_, pending)| pending.action < from) {
            let events = self
                .conversation
                .log()
                .cursor(pending.action)
                .next()
                .await?;
            if let Some(action) = events.into_iter().next() {
                self.queue.push_event(action, ConversationUpdate::Attached);
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, events: Vec<Arc<Event>>) {
        self.next = events.last().map_or(self.next, |last| last.id.next());
        for event in events {
            self.queue.push_event(event, ConversationUpdate::Event);
        }
    }
}

/// Updates the agent's answer to the user with the next event. Messages of other agents are not for
/// the user.
pub fn track_answer(event: &Event, answer: &mut Option<String>) {
    match (event.source, &event.body) {
        _ if event.delegation.is_some() => {}
        (EventSource::User, EventBody::Action(Action::Message(_))) => *answer = None,
        (_, EventBody::Action(Action::Message(message))) => *answer = Some(message.content.clone()),
        (_, EventBody::Action(Action::Finish(finish))) => {
            *answer = Some(finish.final_thought.clone());
        }
        // The agent continued after its message.
        (EventSource::Agent, EventBody::Action(_)) => *answer = None,
        _ => {}
    }
}

/// Whether the conversation continues only with an input of the user.
pub(crate) fn is_idle(state: &State) -> bool {
    let has_ended = match state.agent_state {
        AgentState::AwaitingUserConfirmation => !state.is_working(),
        // A pending action may wait for a sandbox that cannot be reached.
        AgentState::Error => true,
        _ => !state.has_pending_actions(),
    };
    waits_for_user(state.agent_state) && has_ended && state.started.is_some()
}

/// Whether an agent in this state, without actions in flight, continues only with an input of the
/// user.
pub(crate) fn waits_for_user(agent_state: AgentState) -> bool {
    match agent_state {
        AgentState::Finished
        | AgentState::Rejected
        | AgentState::Stopped
        | AgentState::AwaitingUserInput
        | AgentState::AwaitingUserConfirmation
        | AgentState::Paused
        | AgentState::Error => true,
        AgentState::Loading
        | AgentState::Init
        | AgentState::Running
        | AgentState::UserConfirmed
        | AgentState::UserRejected
        | AgentState::RateLimited
        | AgentState::Unknown => false,
    }
}
