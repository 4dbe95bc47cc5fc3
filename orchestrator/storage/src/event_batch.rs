//! Consecutive events of one conversation as JSON. Serialized before they are queued, so that
//! serialization cannot fail in a writer.

use engine::events::{OverviewChange, StoreError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use protocol::{ConversationId, Event, EventId, Timestamp};

use crate::blobs::{BlobReference, BlobStore, CONCURRENT_BLOBS};
use crate::failure::failed;

/// The events of one append. Not empty; their ids are consecutive.
pub(crate) struct EventBatch {
    pub(crate) conversation: ConversationId,
    pub(crate) first: EventId,
    pub(crate) first_at: Timestamp,
    pub(crate) last_at: Timestamp,
    pub(crate) rows: Vec<EventRow>,
    /// The change of the conversation's overview.
    pub(crate) overview: OverviewChange,
}

/// What the row of an event holds.
pub(crate) enum EventRow {
    /// Its JSON.
    Json(String),
    /// The blob that holds its JSON.
    Blob(BlobReference),
}

impl EventRow {
    /// The column `json`. Empty for a blob.
    pub(crate) fn json(&self) -> &str {
        match self {
            Self::Json(json) => json,
            Self::Blob(_) => "",
        }
    }

    /// The column `blob`.
    pub(crate) fn blob(&self) -> Option<String> {
        match self {
            Self::Json(_) => None,
            Self::Blob(reference) => Some(reference.to_string()),
        }
    }
}

impl EventBatch {
    /// Serializes the events. `None` if there are none.
    pub(crate) fn new(
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<Option<Self>, StoreError> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else {
            return Ok(None);
        };
        if let Some(pair) = events
            .windows(2)
            .find(|pair| pair[1].id != pair[0].id.next())
        {
            return Err(StoreError::OutOfOrder {
                conversation: conversation.clone(),
                id: pair[1].id,
            });
        }
        let rows: Result<Vec<_>, _> = events
            .iter()
            .map(|event| serde_json::to_string(event).map(EventRow::Json))
            .collect();
        Ok(Some(Self {
            conversation: conversation.clone(),
            first: first.id,
            first_at: first.timestamp.clone(),
            last_at: last.timestamp.clone(),
            rows: rows.map_err(|error| failed("write events as JSON", error))?,
            overview: OverviewChange::from_events(events),
        }))
    }

    /// Stores large events as blobs. Does not wait if there are none.
    pub(crate) async fn store_blobs(&mut self, blobs: &BlobStore) -> Result<(), StoreError> {
        let Self {
            conversation, rows, ..
        } = self;
        let large = rows.iter_mut().filter(|row| blobs.holds(row.json()));
        let storing: Vec<_> = large.map(|row| row.store(blobs, conversation)).collect();
        futures_util::stream::iter(storing)
            .buffer_unordered(CONCURRENT_BLOBS)
            .try_collect()
            .await
    }

    pub(crate) fn out_of_order(&self) -> StoreError {
        StoreError::OutOfOrder {
            conversation: self.conversation.clone(),
            id: self.first,
        }
    }
}

impl EventRow {
    /// Stores the JSON as a blob.
    async fn store(
        &mut self,
        blobs: &BlobStore,
        conversation: &ConversationId,
    ) -> Result<(), StoreError> {
        if let Self::Json(json) = self {
            *self = Self::Blob(blobs.put(conversation, std::mem::take(json).into()).await?);
        }
        Ok(())
    }
}
