//! The trait of event stores.

use async_trait::async_trait;
use protocol::{ConversationId, Event, EventId, Timestamp};
use tokio::sync::watch;

use super::{ConversationPage, ConversationQuery, ListedConversation};

/// Stores the event logs of many conversations. Only one process at a time may append to a
/// conversation.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Appends events whose ids continue the log, and merges their
    /// [`OverviewChange`](super::OverviewChange) into the overview of the conversation. Atomic.
    /// Once this returns, the events survive a crash of the process.
    ///
    /// # Errors
    /// [`StoreError::OutOfOrder`] if the first event does not follow the end of the log,
    /// [`StoreError::LeaseLost`] if another host may append to it.
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError>;

    /// Returns the events in the form in which they will be stored, for stores that change them.
    ///
    /// # Errors
    /// [`StoreError::Storage`] if an event cannot be stored.
    fn as_stored(&self, events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
        Ok(events)
    }

    /// Returns at most `limit` events from `from` on, in order. Empty if the log ends before
    /// `from`. Events may be large: see [`read_page`](Self::read_page).
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn read(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.read_page(conversation, from, limit, usize::MAX).await
    }

    /// Like [`read`](Self::read), but the page ends with the event at which the JSON of its events
    /// exceeds `max_bytes`.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// Returns one conversation. `None` if it has no events.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError>;

    /// Returns the latest conversations that a query selects. Reads no events.
    ///
    /// # Errors
    /// See [`StoreError`]. A damaged entry is part of the page instead.
    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError>;

    /// Returns all conversations, without their overviews.
    ///
    /// # Errors
    /// See [`StoreError`]. A damaged entry is part of the list instead.
    async fn conversations(&self) -> Result<ConversationList, StoreError>;

    /// Returns the end of a conversation's log, the id of the next event, as far as it is known. It
    /// changes soon after any process appends. It only wakes a reader, which reads from the store.
    /// `None` if only one process appends.
    fn subscribe(&self, conversation: &ConversationId) -> Option<watch::Receiver<EventId>> {
        let _ = conversation;
        None
    }

    /// Checks that events can be stored, as far as that is known without one.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn check_writable(&self) -> Result<(), StoreError>;

    /// Removes a conversation with its log. Idempotent. The caller ensures that no process appends
    /// to it.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError>;
}

/// The conversations of a store.
#[derive(Debug, Default)]
pub struct ConversationList {
    /// The readable ones, sorted by their latest event, newest first.
    pub conversations: Vec<ConversationSummary>,
    /// The unreadable entries, each a [`StoreError::DamagedEntry`].
    pub damaged: Vec<StoreError>,
}

/// A conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationSummary {
    /// Its id.
    pub id: ConversationId,
    /// The number of events in its log.
    pub events: u64,
    /// When its first event was appended.
    pub created_at: Timestamp,
    /// When its last event was appended.
    pub last_updated_at: Timestamp,
}

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The appended events do not follow the end of the log, because another process appends to it.
    /// A retry will fail.
    #[error("event {id} of conversation {conversation} does not follow the end of its log")]
    OutOfOrder {
        /// The conversation.
        conversation: ConversationId,
        /// The first of the appended events.
        id: EventId,
    },
    /// This host no longer holds the lease of the conversation, or another host holds it. Nothing
    /// was changed. A retry fails until the lease is acquired again.
    #[error("cannot change conversation {conversation}: another host may have taken it over")]
    LeaseLost {
        /// The conversation.
        conversation: ConversationId,
    },
    /// A stored event cannot be parsed.
    #[error("event {id} of conversation {conversation} is damaged")]
    Damaged {
        /// The conversation.
        conversation: ConversationId,
        /// The event.
        id: EventId,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The stored metadata of a conversation cannot be read.
    #[error("the entry of conversation {conversation:?} is damaged")]
    DamagedEntry {
        /// The conversation's id according to the entry; may be an arbitrary text.
        conversation: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage has no space left. A retry succeeds once it has.
    #[error("cannot {operation}: the storage is full")]
    Full {
        /// The operation and its subject.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage itself failed.
    #[error("cannot {operation}")]
    Storage {
        /// The operation and its subject, such as `append an event`.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
