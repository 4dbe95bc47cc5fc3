//! The events of a conversation, across the times in which it runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::conversation::{State, read_state};
use protocol::update::WaitState;
use protocol::{AgentState, ConversationId, ConversationUpdate, Event, EventId};
use tokio::sync::watch;
use tokio::time::sleep;

use super::HostedConversations;
use crate::error::ConversationsError;
use crate::follow::{Follower, wait_state, waits_for_user};

/// Interval at which it is checked whether another process still runs a conversation.
const LOCK_INTERVAL: Duration = Duration::from_secs(5);

/// Number of events per read of the store. Bounds the memory of each reader.
const PAGE_SIZE: usize = 32;

/// Streams a conversation: its stored events, then its updates while it runs. A reader may be slow
/// or cancelled, and misses no event.
pub struct EventStream {
    hosted: Arc<HostedConversations>,
    id: ConversationId,
    next: EventId,
    source: Source,
    /// Whether it was reported what the conversation does after the event before `next`: it waits
    /// for its user, or was closed.
    is_end_reported: bool,
}

/// Where the next event comes from.
enum Source {
    /// A page of the store. The conversation is followed once all stored events are read.
    Store(VecDeque<Arc<Event>>),
    /// The running conversation.
    Follower(Box<Follower>),
}

impl EventStream {
    pub(super) fn new(hosted: Arc<HostedConversations>, id: ConversationId, from: EventId) -> Self {
        Self {
            hosted,
            id,
            next: from,
            source: Source::Store(VecDeque::new()),
            is_end_reported: false,
        }
    }

    /// Waits for the next update. Cancel-safe. [`ConversationUpdate::Closed`] means that the
    /// conversation stopped running in this process; later updates follow once it runs again. At
    /// the end of the log of a conversation that does not run, [`ConversationUpdate::Waiting`] is
    /// reported if it waits for its user, else [`ConversationUpdate::Closed`].
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] once the conversation is deleted,
    /// [`ConversationsError::Store`] if the log cannot be read.
    pub async fn next(&mut self) -> Result<ConversationUpdate<Arc<Event>>, ConversationsError> {
        loop {
            match &mut self.source {
                Source::Follower(follower) => {
                    let update = follower.next().await?;
                    match &update {
                        ConversationUpdate::Event(event) => {
                            self.next = event.id.next();
                            self.is_end_reported = false;
                        }
                        ConversationUpdate::Waiting(_) => self.is_end_reported = true,
                        ConversationUpdate::Closed {} => {
                            self.source = Source::Store(VecDeque::new());
                            self.is_end_reported = true;
                        }
                        _ => {}
                    }
                    return Ok(update);
                }
                Source::Store(page) => {
                    if let Some(event) = page.pop_front() {
                        self.next = event.id.next();
                        self.is_end_reported = false;
                        return Ok(ConversationUpdate::Event(event));
                    }
                    if let Some(end) = self.advance().await? {
                        self.is_end_reported = true;
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// Reads the next page of the store, or waits for the conversation to run and follows it.
    /// Returns what a conversation that does not run does after its last event.
    async fn advance(
        &mut self,
    ) -> Result<Option<ConversationUpdate<Arc<Event>>>, ConversationsError> {
        let conversations = &self.hosted.conversations;
        let mut changes = conversations.watch_running();
        let end = conversations.subscribe(&self.id);
        let page = conversations
            .read_page(&self.id, self.next, PAGE_SIZE)
            .await?;
        if !page.is_empty() {
            self.source = Source::Store(page.into_iter().map(Arc::new).collect());
            return Ok(None);
        }
        match conversations.follow(&self.id, self.next).await {
            Ok(follower) if !follower.is_closed() => {
                self.source = Source::Follower(Box::new(follower));
            }
            Ok(_) | Err(ConversationsError::NotRunning(_)) => {
                if self.is_end_reported {
                    conversations.event_count(&self.id).await?;
                } else if let Some(end) = self.hosted.stored_end(&self.id, self.next).await? {
                    return Ok(Some(end));
                }
                let is_end_reported = self.is_end_reported;
                // An error means that the conversations are dropped, which this stream prevents.
                tokio::select! {
                    _ = changes.changed() => {}
                    () = appended_by_other(end, self.next) => {}
                    // Another process may end without a further event.
                    () = sleep(LOCK_INTERVAL), if !is_end_reported => {}
                }
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

impl HostedConversations {
    /// Returns what a conversation that does not run in this process does after the event before
    /// `next`: it waits for its user, or is closed. `None` if that is not its last event, or
    /// another process runs it.
    async fn stored_end(
        &self,
        id: &ConversationId,
        next: EventId,
    ) -> Result<Option<ConversationUpdate<Arc<Event>>>, ConversationsError> {
        let entry = self.conversations.entry(id).await?;
        let entry = entry.ok_or_else(|| ConversationsError::Unknown(id.clone()))?;
        let count = entry.summary.as_ref().map(|summary| summary.events);
        if count.is_some_and(|count| count != next.0) {
            return Ok(None);
        }
        let agent_state = match &entry.overview {
            Ok(overview) => overview.agent_state(),
            Err(_) => AgentState::Unknown,
        };
        if !waits_for_user(agent_state) {
            return Ok((!entry.is_locked).then_some(ConversationUpdate::Closed {}));
        }
        // The overview has neither a limit nor an action.
        let needs_log = entry.is_locked
            || matches!(
                agent_state,
                AgentState::Error | AgentState::AwaitingUserConfirmation
            );
        let state = if needs_log {
            read_state(self.conversations.store.as_ref(), id).await?
        } else {
            State {
                agent_state,
                next_id: next,
                ..State::default()
            }
        };
        let waiting = wait_state(&state);
        let is_idle = waiting.is_idle || !entry.is_locked;
        let is_waiting = state.next_id == next
            && state.agent_state == agent_state
            && (is_idle || waiting.action.is_some());
        Ok(is_waiting.then_some(ConversationUpdate::Waiting(WaitState {
            is_idle,
            ..waiting
        })))
    }
}

/// Waits until a log that other hosts may append to has an event with this id. Never returns for a
/// log of this process alone.
async fn appended_by_other(end: Option<watch::Receiver<EventId>>, id: EventId) {
    let Some(mut end) = end else {
        return std::future::pending().await;
    };
    if end.wait_for(|end| *end > id).await.is_err() {
        // The store is closed.
        std::future::pending::<()>().await;
    }
}
