//! Follows a running conversation: its events, what happens between them, and when it waits for the user.
//!
//! A slow follower misses live output, which the observation has too, but no event. Sends the messages of a replayed
//! user, and asks an agent to continue by itself if there is no user.

use std::sync::Arc;

use engine::conversation::{Conversation, State};
use engine::events::Cursor;
use engine::replay::{self, Trajectory};
use protocol::action::MessageAction;
use protocol::{Action, AgentState, Event, EventBody, EventId, EventSource};

use crate::error::ConversationsError;
use crate::progress::{Progress, ProgressQueue, Waiting};
use crate::resume::Decision;

/// How often an agent that only sends messages is asked to continue, before its question remains open.
const MAX_NUDGES: u32 = 3;

const NUDGE: &str = "Nobody is here to answer. Go on with what you think best. If the task is done, or cannot be, \
                     call finish.";

/// How a conversation is followed.
#[derive(Debug, Clone, Copy)]
pub struct FollowOptions {
    /// The first event to report.
    pub from: EventId,
    /// Whether an agent that asks a question is asked to continue by itself, because there is no user.
    pub auto_continue: bool,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { from: EventId::FIRST, auto_continue: false }
    }
}

/// How a run of a conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// The agent finished its task.
    Finished,
    /// A limit stopped the agent.
    LimitReached,
    /// The agent waits for an answer or an approval.
    AwaitingUser,
    /// The agent was stopped, or failed.
    Failed,
}

impl RunOutcome {
    /// The outcome of a conversation that is at rest.
    pub fn from_state(state: &State) -> Self {
        match state.agent_state {
            AgentState::Finished => Self::Finished,
            AgentState::Error if state.limit_reached.is_some() => Self::LimitReached,
            AgentState::AwaitingUserInput | AgentState::AwaitingUserConfirmation => Self::AwaitingUser,
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
    queue: ProgressQueue,
    /// The event after the last one that is queued.
    next: EventId,
    /// What the user did that the state does not show yet.
    unheard: Option<Unheard>,
    /// The end of the log when waiting was reported.
    reported_waiting: Option<EventId>,
    answer: Option<String>,
    nudges: u32,
    /// Messages of the replayed user that were sent, and actions that were performed again.
    replayed_messages: usize,
    replayed_actions: usize,
    is_stopping: bool,
}

/// What the user did, until the conversation's state shows it.
enum Unheard {
    /// A message, said in this state.
    Message(Arc<State>),
    /// A decision on this action.
    Decision(EventId),
}

impl Follower {
    pub(crate) async fn new(
        conversation: Arc<Conversation>,
        replayed: Option<Trajectory>,
        options: FollowOptions,
    ) -> Result<Self, ConversationsError> {
        let mut follower = Self {
            events: conversation.log().cursor(options.from),
            queue: ProgressQueue::new(conversation.live()),
            conversation,
            replayed,
            auto_continue: options.auto_continue,
            next: options.from,
            unheard: None,
            reported_waiting: None,
            answer: None,
            nudges: 0,
            replayed_messages: 0,
            replayed_actions: 0,
            is_stopping: false,
        };
        follower.attach(options.from).await?;
        Ok(follower)
    }

    /// The conversation's state now.
    pub fn state(&self) -> Arc<State> {
        self.conversation.state()
    }

    /// Whether progress is queued that [`next`](Self::next) returns immediately.
    pub fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether all events are reported and nothing more happens by itself.
    pub fn is_at_rest(&self) -> bool {
        let state = self.state();
        self.queue.is_empty() && self.next >= state.next_id && is_at_rest(&state)
    }

    /// The agent's last message to the user. `None` if it sent none after the user's.
    pub fn answer(&self) -> Option<&str> {
        self.answer.as_deref()
    }

    /// Sends a message as the user.
    ///
    /// # Errors
    /// [`ConversationsError::Conversation`] if the conversation is busy or closed.
    pub fn send(&mut self, content: &str) -> Result<(), ConversationsError> {
        let message = MessageAction { content: content.to_owned(), ..Default::default() };
        self.say(message)
    }

    /// Decides on an action that waits for the user.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn decide(&mut self, action: EventId, decision: Decision) -> Result<(), ConversationsError> {
        decide(&self.conversation, Some(action), decision)?;
        self.unheard = Some(Unheard::Decision(action));
        Ok(())
    }

    /// Stops the agent. What it performs is cancelled; the observation is still reported.
    ///
    /// # Errors
    /// See [`send`](Self::send).
    pub fn stop(&mut self) -> Result<(), ConversationsError> {
        self.unheard = asked(&self.state()).map(Unheard::Decision).or(self.unheard.take());
        self.conversation.stop()?;
        self.is_stopping = true;
        Ok(())
    }

    /// The next progress, as soon as there is some. Cancel-safe.
    ///
    /// # Errors
    /// [`ConversationsError::Store`] if the log cannot be read, [`ConversationsError::Conversation`] if the conversation
    /// takes no message of a replayed user.
    pub async fn next(&mut self) -> Result<Progress, ConversationsError> {
        loop {
            self.wait_until_heard().await;
            let state = self.conversation.state();
            if self.say_replayed(&state)? {
                continue;
            }
            if let Some(progress) = self.queue.pop() {
                if let Progress::Event(event) = &progress {
                    self.note(event);
                }
                return Ok(progress);
            }
            if self.next >= state.next_id && self.reported_waiting != Some(state.next_id) {
                let is_at_rest = is_at_rest(&state);
                if is_at_rest && self.nudge(&state)? {
                    continue;
                }
                if is_at_rest || asked(&state).is_some() {
                    self.reported_waiting = Some(state.next_id);
                    return Ok(Progress::Waiting(Waiting { state, is_at_rest }));
                }
            }
            tokio::select! {
                biased;
                events = self.events.next() => self.enqueue(events?),
                () = self.queue.live() => {}
                // The state follows its events: without this the last ones would be waited for without end.
                now = self.conversation.wait_for(|now| now.next_id > state.next_id) => {
                    if now.next_id == state.next_id {
                        return Ok(Progress::Closed);
                    }
                }
            }
        }
    }

    /// Queues the actions that an earlier process left running, so that their output has its place.
    async fn attach(&mut self, from: EventId) -> Result<(), ConversationsError> {
        let state = self.conversation.state();
        let running = state.pending().filter(|(_, pending)| state.is_performing(pending));
        for (_, pending) in running.filter(|(_, pending)| pending.action < from) {
            let events = self.conversation.log().cursor(pending.action).next().await?;
            if let Some(action) = events.into_iter().next() {
                self.queue.push_event(action, Progress::Attached);
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, events: Vec<Event>) {
        self.next = events.last().map_or(self.next, |last| last.id.next());
        self.replayed_actions += replay::count_replayable(&events);
        for event in events {
            self.queue.push_event(event, Progress::Event);
        }
    }

    fn note(&mut self, event: &Event) {
        note_answer(event, &mut self.answer);
        let is_talk = |action: &Action| matches!(action, Action::Message(_) | Action::System(_));
        if matches!(&event.body, EventBody::Action(action) if !is_talk(action)) {
            self.nudges = 0;
        }
    }

    fn say(&mut self, message: MessageAction) -> Result<(), ConversationsError> {
        let before = self.conversation.state();
        self.conversation.say(message)?;
        self.unheard = Some(Unheard::Message(before));
        Ok(())
    }

    /// Says the next message of the replayed user, if it is due.
    fn say_replayed(&mut self, state: &State) -> Result<bool, ConversationsError> {
        let replayed = self.replayed.as_ref();
        let due = replayed
            .and_then(|replayed| replayed.message_after(self.replayed_messages, self.replayed_actions))
            .filter(|_| !state.is_underway() && !self.is_stopping)
            .filter(|_| !matches!(state.agent_state, AgentState::Stopped | AgentState::Paused));
        let Some(message) = due.cloned() else { return Ok(false) };
        self.replayed_messages += 1;
        self.say(message)?;
        Ok(true)
    }

    /// Tells an agent that asks a question to continue by itself, if no user is there.
    fn nudge(&mut self, state: &State) -> Result<bool, ConversationsError> {
        let asks = state.agent_state == AgentState::AwaitingUserInput;
        if !asks || !self.auto_continue || self.nudges >= MAX_NUDGES || self.is_stopping {
            return Ok(false);
        }
        self.nudges += 1;
        self.send(NUDGE)?;
        Ok(true)
    }

    async fn wait_until_heard(&mut self) {
        match &self.unheard {
            None => return,
            Some(Unheard::Message(before)) => {
                self.conversation.wait_for(|now| has_heard(now, before)).await;
            }
            Some(Unheard::Decision(action)) => {
                self.conversation.wait_for(|now| asked(now) != Some(*action)).await;
            }
        }
        self.unheard = None;
    }
}

/// Applies a decision to the action that waits, or to the named one.
pub(crate) fn decide(
    conversation: &Conversation,
    action: Option<EventId>,
    decision: Decision,
) -> Result<(), ConversationsError> {
    let action = match decision {
        Decision::ApproveSimilar => action.or_else(|| asked(&conversation.state())),
        Decision::Approve | Decision::Reject(_) => action,
    };
    match (decision, action) {
        (Decision::ApproveSimilar, Some(action)) => conversation.confirm_similar(action)?,
        (Decision::Approve | Decision::ApproveSimilar, action) => conversation.confirm(action)?,
        (Decision::Reject(reason), action) => conversation.reject(action, reason)?,
    }
    Ok(())
}

/// The first action that waits for the user's approval. `None` if the conversation's agent does not wait for one.
fn asked(state: &State) -> Option<EventId> {
    let is_awaited = state.agent_state == AgentState::AwaitingUserConfirmation;
    state.asked().filter(|_| is_awaited).map(|(_, pending)| pending.action)
}

/// Keeps what the agent says to the user. What other agents say is not for the user.
fn note_answer(event: &Event, answer: &mut Option<String>) {
    match (event.source, &event.body) {
        _ if event.delegation.is_some() => {}
        (EventSource::User, EventBody::Action(Action::Message(_))) => *answer = None,
        (_, EventBody::Action(Action::Message(message))) => *answer = Some(message.content.clone()),
        (_, EventBody::Action(Action::Finish(finish))) => *answer = Some(finish.final_thought.clone()),
        // It said something, and continued.
        (EventSource::Agent, EventBody::Action(_)) => *answer = None,
        _ => {}
    }
}

/// Whether a message that was said in the state `before` has arrived. A title comes by itself.
fn has_heard(now: &State, before: &State) -> bool {
    let by_itself = u64::from(now.title != before.title);
    now.next_id.0 > before.next_id.0 + by_itself
}

/// Whether nothing more happens by itself.
fn is_at_rest(state: &State) -> bool {
    let rests = match state.agent_state {
        AgentState::Finished
        | AgentState::Rejected
        | AgentState::Stopped
        | AgentState::AwaitingUserInput
        | AgentState::Paused => !state.is_underway(),
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
    rests && state.started.is_some()
}
