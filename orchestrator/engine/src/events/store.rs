//! The seam to where logs are kept.

use async_trait::async_trait;
use protocol::{ConversationId, Event, EventId, Timestamp};

/// Keeps the logs of many conversations. One process at a time appends to a conversation.
#[async_trait]
pub trait EventStore: Send + Sync {
    /// Appends events whose ids go on where the log ends: all of them or none. When this returns they survive the
    /// death of this process.
    ///
    /// # Errors
    /// [`StoreError::OutOfOrder`] when the log does not end before the first of them.
    async fn append(&self, conversation: &ConversationId, events: &[Event]) -> Result<(), StoreError>;

    /// Events as they will be read, where that is not as they are given.
    ///
    /// # Errors
    /// [`StoreError::Storage`] for what cannot be kept.
    fn as_stored(&self, events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
        Ok(events)
    }

    /// At most `limit` events from `from` on, in order. Nothing: the log ends before `from`.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn read(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// All conversations.
    ///
    /// # Errors
    /// See [`StoreError`]. A damaged entry is part of the list.
    async fn conversations(&self) -> Result<ConversationList, StoreError>;

    /// Removes a conversation with its log. One that does not exist is no error. The caller makes sure that no process
    /// appends to it.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError>;
}

/// The conversations of a store.
#[derive(Debug, Default)]
pub struct ConversationList {
    /// Those whose entry can be read, the one with the latest event first.
    pub conversations: Vec<ConversationSummary>,
    /// The entries that cannot be read, each a [`StoreError::DamagedEntry`].
    pub damaged: Vec<StoreError>,
}

/// What a list shows of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationSummary {
    /// Its id.
    pub id: ConversationId,
    /// How many events its log has.
    pub events: u64,
    /// When its first event was appended.
    pub created_at: Timestamp,
    /// When its last event was appended.
    pub last_updated_at: Timestamp,
}

/// How a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The log does not end where the appended events begin: another process appends to it. Not worth a retry.
    #[error("event {id} of conversation {conversation} does not follow the end of its log")]
    OutOfOrder {
        /// The conversation.
        conversation: ConversationId,
        /// The first of the appended events.
        id: EventId,
    },
    /// What is stored cannot be read as events.
    #[error("event {id} of conversation {conversation} is damaged")]
    Damaged {
        /// The conversation.
        conversation: ConversationId,
        /// The event.
        id: EventId,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What is stored of a conversation beside its log cannot be read.
    #[error("the entry of conversation {conversation:?} is damaged")]
    DamagedEntry {
        /// What the entry says is the conversation's id; it may be anything.
        conversation: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The storage itself failed.
    #[error("{doing}")]
    Storage {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
