//! A turn of an agent: from a message of the user until the agent is idle.
//!
//! For front ends whose requests wait for the result of a message. A turn is bounded in time. It
//! ends by itself when the conversation is closed or moves to another host; then the stored events
//! decide how it ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::conversation::{State, read_state};
use protocol::action::MessageAction;
use protocol::metrics::TokenUsage;
use protocol::observation::ObservationKind;
use protocol::record::Limit;
use protocol::{
    Action, AgentState, ConversationId, ConversationUpdate, Event, EventBody, EventId, EventSource,
    UserCommand,
};
use tokio::time::{Instant, timeout_at};

use super::stop_on_drop::StopOnDrop;
use super::{ConversationRequest, HostedConversations};
use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::follow::Follower;

/// Number of events per read of the store.
const PAGE_SIZE: usize = 64;

/// A turn that is followed.
pub struct Turn {
    hosted: Arc<HostedConversations>,
    id: ConversationId,
    /// The first event that is not returned yet.
    next: EventId,
    source: Source,
    deadline: Instant,
    /// Whether events are left out, because the user's message is not among them yet.
    awaits_message: bool,
    /// The token usage of the conversation before the turn.
    usage_before: TokenUsage,
    /// The reason of the latest change of the agent's state.
    reason: String,
    /// Stops the agent if the turn is dropped before its end. `None` for a conversation that
    /// existed before the turn.
    stop: Option<StopOnDrop>,
}

/// Part of a turn.
#[derive(Debug)]
pub enum TurnUpdate {
    /// An event was appended.
    Event(Arc<Event>),
    /// The turn has ended. The last update.
    Ended(TurnEnd),
}

/// How a turn ended.
#[derive(Debug)]
pub struct TurnEnd {
    /// Why the agent no longer works.
    pub outcome: TurnOutcome,
    /// The tokens that all agents of the conversation used in the turn.
    pub usage: TokenUsage,
}

/// Why a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The agent finished its task.
    Finished,
    /// The agent waits for a message of the user.
    AwaitingMessage,
    /// An action awaits the user's confirmation.
    AwaitingConfirmation {
        /// The action.
        action: EventId,
    },
    /// The agent refused the task.
    Rejected,
    /// The agent was stopped.
    Stopped,
    /// The agent was paused.
    Paused,
    /// A limit stopped the agent.
    LimitReached(Limit),
    /// The agent failed, for this reason.
    Failed(String),
    /// The conversation was closed while the agent worked, or another host runs it.
    Closed,
    /// The agent works for longer than the caller waits. It continues.
    TimedOut,
}

/// Where the next event comes from.
enum Source {
    /// The running conversation.
    Follower(Box<Follower>),
    /// The store, because the conversation does not run in this process.
    Store(VecDeque<Arc<Event>>),
}

impl HostedConversations {
    /// Creates a conversation, and returns the turn that its message starts. The agent is stopped
    /// if the turn is dropped before its end, even while the conversation is created.
    ///
    /// # Errors
    /// See [`create`](Self::create); [`ConversationsError::Store`].
    pub async fn start_turn(
        self: &Arc<Self>,
        request: ConversationRequest,
        max_duration: Duration,
    ) -> Result<Turn, ConversationsError> {
        let deadline = Instant::now() + max_duration;
        // The change completes without its caller, and then drops the guard.
        let stop = self
            .change_awaited(&Conversations::new_id(), |this, id, awaited| async move {
                this.create_as(&id, request, &awaited).await?;
                Ok(StopOnDrop::new(this, id))
            })
            .await?;
        let turn = Turn::new(
            Arc::clone(self),
            stop.id().clone(),
            EventId::FIRST,
            deadline,
        )
        .await?;
        Ok(Turn {
            awaits_message: true,
            stop: Some(stop),
            ..turn
        })
    }

    /// Sends a message to a conversation, and returns the turn that it starts or continues. The
    /// agent keeps working if the turn is dropped.
    ///
    /// # Errors
    /// See [`apply`](Self::apply); [`ConversationsError::Unknown`] or
    /// [`ConversationsError::Store`].
    pub async fn continue_turn(
        self: &Arc<Self>,
        id: &ConversationId,
        message: MessageAction,
        max_duration: Duration,
    ) -> Result<Turn, ConversationsError> {
        let deadline = Instant::now() + max_duration;
        let before = self.latest_state(id).await?;
        self.apply(id, UserCommand::SendMessage(message)).await?;
        let turn = Turn::new(Arc::clone(self), id.clone(), before.next_id, deadline).await?;
        let usage_before = before.metrics.accumulated_token_usage.clone();
        Ok(Turn {
            awaits_message: true,
            usage_before,
            ..turn
        })
    }

    /// Follows what the agent of a conversation does from the user's last message on, until it is
    /// idle. If it is idle already, the turn has the stored events only. Its usage is that of
    /// the whole conversation.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn follow_turn(
        self: &Arc<Self>,
        id: &ConversationId,
        max_duration: Duration,
    ) -> Result<Turn, ConversationsError> {
        let deadline = Instant::now() + max_duration;
        let from = self
            .latest_state(id)
            .await?
            .last_user_message
            .unwrap_or(EventId::FIRST);
        Turn::new(Arc::clone(self), id.clone(), from, deadline).await
    }

    /// Returns the state of a conversation, whether it runs or not.
    pub(super) async fn latest_state(
        &self,
        id: &ConversationId,
    ) -> Result<Arc<State>, ConversationsError> {
        if let Some(state) = self.state(id) {
            return Ok(state);
        }
        let state = read_state(self.conversations.store.as_ref(), id).await?;
        if state.started.is_none() {
            return Err(ConversationsError::Unknown(id.clone()));
        }
        Ok(Arc::new(state))
    }
}

impl Turn {
    async fn new(
        hosted: Arc<HostedConversations>,
        id: ConversationId,
        from: EventId,
        deadline: Instant,
    ) -> Result<Self, ConversationsError> {
        let source = match hosted.conversations.follow(&id, from).await {
            Ok(follower) => Source::Follower(Box::new(follower)),
            Err(ConversationsError::NotRunning(_)) => Source::Store(VecDeque::new()),
            Err(error) => return Err(error),
        };
        Ok(Self {
            hosted,
            id,
            next: from,
            source,
            deadline,
            awaits_message: false,
            usage_before: TokenUsage::default(),
            reason: String::new(),
            stop: None,
        })
    }

    /// Returns the conversation.
    pub fn conversation(&self) -> &ConversationId {
        &self.id
    }

    /// Lets the agent continue although the turn may be dropped before its end.
    pub fn detach(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.disarm();
        }
    }

    /// Waits for the next update. Cancel-safe. Not called again after [`TurnUpdate::Ended`].
    ///
    /// # Errors
    /// [`ConversationsError::Store`] if the log cannot be read.
    pub async fn next(&mut self) -> Result<TurnUpdate, ConversationsError> {
        let deadline = self.deadline;
        let update = match timeout_at(deadline, self.next_before_deadline()).await {
            Ok(update) => update?,
            Err(_) => {
                TurnUpdate::Ended(self.end_of(&*self.latest_state().await?, TurnOutcome::TimedOut))
            }
        };
        if let TurnUpdate::Ended(_) = &update {
            self.detach();
        }
        Ok(update)
    }

    async fn next_before_deadline(&mut self) -> Result<TurnUpdate, ConversationsError> {
        loop {
            match &mut self.source {
                Source::Follower(follower) => match follower.next().await? {
                    ConversationUpdate::Event(event) => {
                        if let Some(event) = self.track(event) {
                            return Ok(TurnUpdate::Event(event));
                        }
                    }
                    ConversationUpdate::Waiting(_) => {
                        let state = follower.waiting_state();
                        return Ok(self.end(&state));
                    }
                    ConversationUpdate::Closed {} => self.source = Source::Store(VecDeque::new()),
                    _ => {}
                },
                Source::Store(page) => match page.pop_front() {
                    Some(event) => {
                        if let Some(event) = self.track(event) {
                            return Ok(TurnUpdate::Event(event));
                        }
                    }
                    None => {
                        let read = self
                            .hosted
                            .conversations
                            .read_page(&self.id, self.next, PAGE_SIZE)
                            .await?;
                        *page = read.into_iter().map(Arc::new).collect();
                        if page.is_empty() {
                            let state = self.latest_state().await?;
                            return Ok(self.end(&state));
                        }
                    }
                },
            }
        }
    }

    async fn latest_state(&self) -> Result<Arc<State>, ConversationsError> {
        self.hosted.latest_state(&self.id).await
    }

    /// Records an event as read. Returns it if it is part of the turn.
    fn track(&mut self, event: Arc<Event>) -> Option<Arc<Event>> {
        self.next = event.id.next();
        self.awaits_message &= !is_user_message(&event);
        if let EventBody::Observation(observation) = &event.body
            && let ObservationKind::AgentStateChanged(changed) = &observation.kind
        {
            self.reason.clone_from(&changed.reason);
        }
        (!self.awaits_message).then_some(event)
    }

    fn end(&self, state: &State) -> TurnUpdate {
        TurnUpdate::Ended(self.end_of(state, self.outcome(state)))
    }

    fn end_of(&self, state: &State, outcome: TurnOutcome) -> TurnEnd {
        let (total, before) = (&state.metrics.accumulated_token_usage, &self.usage_before);
        let usage = TokenUsage {
            prompt_tokens: total.prompt_tokens.saturating_sub(before.prompt_tokens),
            completion_tokens: total
                .completion_tokens
                .saturating_sub(before.completion_tokens),
            cache_read_tokens: total
                .cache_read_tokens
                .saturating_sub(before.cache_read_tokens),
            cache_write_tokens: total
                .cache_write_tokens
                .saturating_sub(before.cache_write_tokens),
            ..total.clone()
        };
        TurnEnd { outcome, usage }
    }

    /// Why the agent no longer works in this state.
    fn outcome(&self, state: &State) -> TurnOutcome {
        match state.agent_state {
            AgentState::Finished => TurnOutcome::Finished,
            AgentState::AwaitingUserInput | AgentState::Init => TurnOutcome::AwaitingMessage,
            AgentState::AwaitingUserConfirmation => match state.awaiting_confirmation() {
                Some((_, pending)) => TurnOutcome::AwaitingConfirmation {
                    action: pending.action,
                },
                None => TurnOutcome::Closed,
            },
            AgentState::Rejected => TurnOutcome::Rejected,
            AgentState::Stopped => TurnOutcome::Stopped,
            AgentState::Paused => TurnOutcome::Paused,
            AgentState::Error => match state.limit_reached {
                Some(limit) => TurnOutcome::LimitReached(limit),
                None => TurnOutcome::Failed(self.reason.clone()),
            },
            AgentState::Loading
            | AgentState::Running
            | AgentState::UserConfirmed
            | AgentState::UserRejected
            | AgentState::RateLimited
            | AgentState::Unknown => TurnOutcome::Closed,
        }
    }
}

fn is_user_message(event: &Event) -> bool {
    event.delegation.is_none()
        && event.source == EventSource::User
        && matches!(&event.body, EventBody::Action(Action::Message(_)))
}
