//! The updates of a conversation for one client of a stream or a socket.

use std::sync::Arc;

use accounts::Caller;
use conversations::{ConversationUpdate, ConversationsError, EventStream};
use protocol::{ConversationId, EventId, UserId};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use crate::state::ServerState;

/// Length from which an event needs a permit of its user until the client has taken it. Each
/// client has a copy of it.
pub(crate) const MIN_LARGE_BYTES: usize = 256 << 10;

/// The updates, with the JSON of events. A user's clients have only some large events at a time.
pub(crate) struct ClientUpdates {
    state: Arc<ServerState>,
    /// `None` for the operator, who has no limits.
    user: Option<UserId>,
    id: ConversationId,
    events: EventStream,
    /// Held while the last event is sent, if it is large.
    sending: Option<OwnedSemaphorePermit>,
}

impl ClientUpdates {
    /// Creates the updates from an event on.
    pub(crate) async fn new(
        state: &Arc<ServerState>,
        caller: &Caller,
        id: &ConversationId,
        first: EventId,
    ) -> Result<Self, ConversationsError> {
        Ok(Self {
            state: Arc::clone(state),
            user: caller.user.clone(),
            id: id.clone(),
            events: state.conversations.stream(id, first).await?,
            sending: None,
        })
    }

    /// Waits for the next update, once the client has taken the last one. Events that clients do
    /// not see have no JSON. Not cancel-safe.
    pub(crate) async fn next(
        &mut self,
    ) -> Result<(ConversationUpdate, Option<Arc<RawValue>>), ConversationsError> {
        self.sending = None;
        loop {
            let update = self.events.next().await?;
            let ConversationUpdate::Event(event) = &update else {
                return Ok((update, None));
            };
            let json = self.state.client_events.json(event).await;
            let length = json.as_ref().map_or(0, |json| json.get().len());
            let Some(user) = self.user.clone().filter(|_| length >= MIN_LARGE_BYTES) else {
                return Ok((update, json));
            };
            if self.sending.is_some() {
                return Ok((update, json));
            }
            let permits = &self.state.large_events_by_user;
            self.sending = permits.try_acquire(user.clone());
            if self.sending.is_some() {
                return Ok((update, json));
            }
            // It is read again, so that a client that waits holds no event.
            let id = event.id;
            drop((update, json));
            self.events = self.state.conversations.stream(&self.id, id).await?;
            self.sending = permits.acquire(user).await;
        }
    }
}
