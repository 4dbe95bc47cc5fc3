//! An in-memory event store that kills the process before or after an append.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use engine::events::{
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation,
    StoreError,
};
use engine::testing::MemoryStore;
use protocol::{ConversationId, Event, EventId};

pub(crate) struct DeadlyStore {
    pub(crate) logs: Arc<MemoryStore>,
    /// The number of appends until the process is killed.
    pub(crate) appends_left: AtomicU32,
    /// Whether the last append takes effect.
    pub(crate) keeps_last: bool,
}

#[async_trait]
impl EventStore for DeadlyStore {
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        let left = self.appends_left.fetch_sub(1, Ordering::Relaxed);
        if left > 1 || self.keeps_last {
            self.logs.append(conversation, events).await?;
        }
        if left > 1 {
            Ok(())
        } else {
            Err(StoreError::Storage {
                operation: "append an event",
                source: "killed".into(),
            })
        }
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.logs
            .read_page(conversation, from, limit, max_bytes)
            .await
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        self.logs.find(conversation).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        self.logs.list(query).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.logs.conversations().await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.logs.check_writable().await
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.logs.remove(conversation).await
    }
}
