//! Follows a running conversation: its events, live updates, and waits for the user.
//!
//! A slow follower can miss live output, which the observation repeats, but no event. A follower
//! also sends the messages of a replayed user, and requests an agent to continue on its own if
//! there is no user.

use std::sync::Arc;

use engine::conversation::{Conversation, State};
use engine::events::Cursor;
use engine::replay::{self, Trajectory};
use protocol::action::MessageAction;
use protocol::{Action, AgentState, Event, EventBody, EventId, EventSource};

use crate::error::ConversationsError;
use crate::resume::{UserDecision, action_awaiting_confirmation};
use crate::update::{ConversationUpdate, UpdateQueue, WaitState};

/// Maximum number of requests to continue, in a row, to an agent that only sends messages.
const MAX_CONTINUE_REQUESTS: u32 = 3;

const CONTINUE_REQUEST: &str = "No user is here to answer. Continue with what you think best. If the task is done, \
    or cannot be, call finish.";

/// Options of a follower. The default reports all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct FollowOptions {
    /// The first event to report.
    pub from: EventId,
    /// Whether an agent that asks a question is requested to continue on its own, because there is
    /// no user.
    pub auto_continue: bool,
}

/// Outcome of a run of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// The agent finished its task.
    Finished,
    /// A limit stopped the agent.
    LimitReached,
    /// The agent waits for a message or an approval.
    AwaitingUser,
    /// The agent was stopped, or failed.
    Failed,
}

impl RunOutcome {
    /// Returns the outcome of a conversation that is at rest.
    pub fn from_state(state: &State) -> Self {
        match state.agent_state {
            AgentState::Finished => Self::Finished,
            AgentState::Error if state.limit_reached.is_some() => Self::LimitReached,
            AgentState::AwaitingUserInput | AgentState::AwaitingUserConfirmation => {
                Self::AwaitingUser
            }
            _ => Self::Failed,
        }
    }
}

/// Follows one running conversation.
pub struct Follower {
    conversation: Arc<Conversation>,
    replayed: Option<Trajectory>,
    auto_continue: bool,
    events: Cursor,
    queue: UpdateQueue,
    /// The event after the last one that is queued.
    next: EventId,
    /// An input of the user that the state does not reflect yet.
    unapplied: Option<UnappliedInput>,
    /// The end of the log when waiting was reported.
    reported_waiting: Option<EventId>,
    answer: Option<String>,
    /// Number of requests to continue since the agent's last action other than a message.
    continue_request_count: u32,
    /// Number of sent messages of the replayed user.
    replayed_message_count: usize,
    replayed_action_count: usize,
    is_stopping: bool,
}

/// An input of the user that the conversation's state does not reflect yet.
enum UnappliedInput {
    /// A message, with the state before it.
    Message(Arc<State>),
    /// A decision on this action.
    UserDecision(EventId),
}

impl Follower {
    pub(crate) async fn new(
        conversation: Arc<Conversation>,
        replayed: Option<Trajectory>,
        options: FollowOptions,
    ) -> Result<Self, ConversationsError> {
        let mut follower = Self {
            events: conversation.log().cursor(options.from),
            queue: UpdateQueue::new(conversation.subscribe()),
            conversation,
            replayed,
            auto_continue: options.auto_continue,
            next: options.from,
            unapplied: None,
            reported_waiting: None,
            answer: None,
            continue_request_count: 0,
            replayed_message_count: 0,
            replayed_action_count: 0,
            is_stopping: false,
        };
        follower.queue_running_actions(options.from).await?;
        Ok(follower)
    }

    /// Returns the conversation's current state.
    pub fn state(&self) -> Arc<State> {
        self.conversation.state()
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

    /// Whether all events are reported and the conversation is at rest.
    pub fn is_at_rest(&self) -> bool {
        let state = self.state();
        self.queue.is_empty() && self.next >= state.next_id && is_at_rest(&state)
    }

    /// Returns the agent's last message to the user. `None` if it sent none after the user's.
    pub fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    /// Sends a message as the user.
    ///
    /// # Errors
    /// [`ConversationsError::Conversation`] if the conversation is busy or closed.
    pub fn send_message(&mut self, content: &str) -> Result<(), ConversationsError> {
        let message = MessageAction {
            content: content.to_owned(),
            ..Default::default()
        };
        self.send(message)
    }

    /// Decides on an action that awaits confirmation.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn decide(
        &mut self,
        action: EventId,
        decision: UserDecision,
    ) -> Result<(), ConversationsError> {
        decide(&self.conversation, Some(action), decision)?;
        self.unapplied = Some(UnappliedInput::UserDecision(action));
        Ok(())
    }

    /// Stops the agent. Its action in flight is cancelled, and the observation is still reported.
    ///
    /// # Errors
    /// See [`send_message`](Self::send_message).
    pub fn stop(&mut self) -> Result<(), ConversationsError> {
        self.unapplied = action_awaiting_confirmation(&self.state())
            .map(UnappliedInput::UserDecision)
            .or(self.unapplied.take());
        self.conversation.stop()?;
        self.is_stopping = true;
        Ok(())
    }

    /// Waits for the next update. Cancel-safe.
    ///
    /// # Errors
    /// [`ConversationsError::Store`] if the log cannot be read,
    /// [`ConversationsError::Conversation`] if a message of a replayed user cannot be sent.
    pub async fn next(&mut self) -> Result<ConversationUpdate, ConversationsError> {
        loop {
            self.wait_until_applied().await;
            let state = self.conversation.state();
            if self.send_replayed_message(&state)? {
                continue;
            }
            if let Some(update) = self.queue.pop() {
                if let ConversationUpdate::Event(event) = &update {
                    self.track_event(event);
                }
                return Ok(update);
            }
            if self.next >= state.next_id && self.reported_waiting != Some(state.next_id) {
                let is_at_rest = is_at_rest(&state);
                if is_at_rest && self.request_continue(&state)? {
                    continue;
                }
                if is_at_rest || action_awaiting_confirmation(&state).is_some() {
                    self.reported_waiting = Some(state.next_id);
                    return Ok(ConversationUpdate::Waiting(WaitState { state, is_at_rest }));
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
                        return Ok(ConversationUpdate::Closed);
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
        self.replayed_action_count += replay::count_replayable(events.iter().map(Arc::as_ref));
        for event in events {
            self.queue.push_event(event, ConversationUpdate::Event);
        }
    }

    fn track_event(&mut self, event: &Event) {
        track_answer(event, &mut self.answer);
        let is_message = |action: &Action| matches!(action, Action::Message(_) | Action::System(_));
        if matches!(&event.body, EventBody::Action(action) if !is_message(action)) {
            self.continue_request_count = 0;
        }
    }

    fn send(&mut self, message: MessageAction) -> Result<(), ConversationsError> {
        let before = self.conversation.state();
        self.conversation.send_message(message)?;
        self.unapplied = Some(UnappliedInput::Message(before));
        Ok(())
    }

    /// Sends the next message of the replayed user if it is due. Returns whether it was.
    fn send_replayed_message(&mut self, state: &State) -> Result<bool, ConversationsError> {
        let next = self.replayed.as_ref().and_then(|replayed| {
            replayed.message_after(self.replayed_message_count, self.replayed_action_count)
        });
        let due = next
            .filter(|_| !state.has_pending_actions() && !self.is_stopping)
            .filter(|_| !matches!(state.agent_state, AgentState::Stopped | AgentState::Paused));
        let Some(message) = due.cloned() else {
            return Ok(false);
        };
        self.replayed_message_count += 1;
        self.send(message)?;
        Ok(true)
    }

    /// Requests an agent that asks a question to continue on its own, if there is no user. Returns
    /// whether it did.
    fn request_continue(&mut self, state: &State) -> Result<bool, ConversationsError> {
        let is_due = self.auto_continue
            && !self.is_stopping
            && state.agent_state == AgentState::AwaitingUserInput
            && self.continue_request_count < MAX_CONTINUE_REQUESTS;
        if is_due {
            self.continue_request_count += 1;
            self.send_message(CONTINUE_REQUEST)?;
        }
        Ok(is_due)
    }

    async fn wait_until_applied(&mut self) {
        match &self.unapplied {
            None => return,
            Some(UnappliedInput::Message(before)) => {
                self.conversation
                    .wait_for(|now| has_message_arrived(now, before))
                    .await;
            }
            Some(UnappliedInput::UserDecision(action)) => {
                self.conversation
                    .wait_for(|now| action_awaiting_confirmation(now) != Some(*action))
                    .await;
            }
        }
        self.unapplied = None;
    }
}

/// Applies a decision to the action that awaits confirmation, or only to the named one.
pub(crate) fn decide(
    conversation: &Conversation,
    action: Option<EventId>,
    decision: UserDecision,
) -> Result<(), ConversationsError> {
    let to_approve = || action.or_else(|| action_awaiting_confirmation(&conversation.state()));
    match decision {
        UserDecision::Approve => conversation.confirm(action)?,
        UserDecision::ApproveSimilar => match to_approve() {
            Some(action) => conversation.confirm_similar(action)?,
            None => conversation.confirm(None)?,
        },
        UserDecision::Reject(reason) => conversation.reject(action, reason)?,
    }
    Ok(())
}

/// Updates the agent's answer to the user. Messages of other agents are not for the user.
fn track_answer(event: &Event, answer: &mut Option<String>) {
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

/// Whether a message that was sent in the state `before` has arrived. A new title is an event too.
fn has_message_arrived(now: &State, before: &State) -> bool {
    let title_events = u64::from(now.title != before.title);
    now.next_id.0 > before.next_id.0 + title_events
}

/// Whether the conversation continues only with an input of the user.
pub(crate) fn is_at_rest(state: &State) -> bool {
    let is_resting = match state.agent_state {
        AgentState::Finished
        | AgentState::Rejected
        | AgentState::Stopped
        | AgentState::AwaitingUserInput
        | AgentState::Paused => !state.has_pending_actions(),
        AgentState::AwaitingUserConfirmation => !state.is_working(),
        // A pending action may wait for a sandbox that cannot be reached.
        AgentState::Error => true,
        AgentState::Loading
        | AgentState::Init
        | AgentState::Running
        | AgentState::UserConfirmed
        | AgentState::UserRejected
        | AgentState::RateLimited
        | AgentState::Unknown => false,
    };
    is_resting && state.started.is_some()
}
