//! Wraps an event store so that no secret is stored.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use protocol::{ConversationId, Event, EventId};

use super::Redactor;
use crate::events::{
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation,
    StoreError,
};

/// Redacts every event before it is stored. Reads need no redaction.
pub struct GuardedStore {
    store: Arc<dyn EventStore>,
    redactor: Redactor,
}

impl GuardedStore {
    /// Wraps a store.
    pub fn new(store: Arc<dyn EventStore>, redactor: Redactor) -> Self {
        Self { store, redactor }
    }

    fn redact<'a>(&self, events: &'a [Event]) -> Result<Cow<'a, [Event]>, StoreError> {
        let mut result = Cow::Borrowed(events);
        for (index, event) in events.iter().enumerate() {
            let redacted = self.redactor.event(event).map_err(|error| StoreError::Storage {
                operation: "redact a secret in an event: its value is a keyword of the log format, choose another one",
                source: Box::new(error),
            })?;
            let Some(redacted) = redacted else { continue };
            if let Some(slot) = result.to_mut().get_mut(index) {
                *slot = redacted;
            }
        }
        Ok(result)
    }
}

#[async_trait]
impl EventStore for GuardedStore {
    fn as_stored(&self, events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
        Ok(self.redact(&events)?.into_owned())
    }

    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        self.store.append(conversation, &self.redact(events)?).await
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.store
            .read_page(conversation, from, limit, max_bytes)
            .await
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        self.store.find(conversation).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        self.store.list(query).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.store.conversations().await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.store.check_writable().await
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.store.remove(conversation).await
    }
}
