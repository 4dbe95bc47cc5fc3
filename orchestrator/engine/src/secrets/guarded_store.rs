//! A log that no secret gets into.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use protocol::{ConversationId, Event, EventId};

use super::Redactor;
use crate::events::{ConversationList, EventStore, StoreError};

/// Takes the secrets out of every event before it is stored. What is read was stored so.
pub struct GuardedStore {
    store: Arc<dyn EventStore>,
    redactor: Redactor,
}

impl GuardedStore {
    /// Stands before a store.
    pub fn new(store: Arc<dyn EventStore>, redactor: Redactor) -> Self {
        Self { store, redactor }
    }

    fn clean<'a>(&self, events: &'a [Event]) -> Result<Cow<'a, [Event]>, StoreError> {
        let mut clean = Cow::Borrowed(events);
        for (index, event) in events.iter().enumerate() {
            let redacted = self.redactor.event(event).map_err(|error| StoreError::Storage {
                doing: "taking a secret out of an event: its value is a word of the log itself, choose another",
                source: Box::new(error),
            })?;
            let Some(redacted) = redacted else { continue };
            if let Some(place) = clean.to_mut().get_mut(index) {
                *place = redacted;
            }
        }
        Ok(clean)
    }
}

#[async_trait]
impl EventStore for GuardedStore {
    fn as_stored(&self, events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
        Ok(self.clean(&events)?.into_owned())
    }

    async fn append(&self, conversation: &ConversationId, events: &[Event]) -> Result<(), StoreError> {
        self.store.append(conversation, &self.clean(events)?).await
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.store.read(conversation, from, limit).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.store.conversations().await
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.store.remove(conversation).await
    }
}
