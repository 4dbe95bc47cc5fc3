//! Consecutive events of one conversation as JSON. Serialized before they are queued, so that serialization cannot fail in a
//! writer.

use engine::events::{OverviewChange, StoreError};
use protocol::{ConversationId, Event, EventId, Timestamp};

use crate::failure::failed;

/// The events of one append. Not empty; their ids are consecutive.
pub(crate) struct EventBatch {
    pub(crate) conversation: ConversationId,
    pub(crate) first: EventId,
    pub(crate) first_at: Timestamp,
    pub(crate) last_at: Timestamp,
    /// The JSON of each event.
    pub(crate) rows: Vec<String>,
    /// The change of the conversation's overview.
    pub(crate) overview: OverviewChange,
}

impl EventBatch {
    /// Serializes the events. `None` if there are none.
    pub(crate) fn new(conversation: &ConversationId, events: &[Event]) -> Result<Option<Self>, StoreError> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else {
            return Ok(None);
        };
        if let Some(pair) = events.windows(2).find(|pair| pair[1].id != pair[0].id.next()) {
            return Err(StoreError::OutOfOrder { conversation: conversation.clone(), id: pair[1].id });
        }
        let rows: Result<Vec<_>, _> = events.iter().map(serde_json::to_string).collect();
        Ok(Some(Self {
            conversation: conversation.clone(),
            first: first.id,
            first_at: first.timestamp.clone(),
            last_at: last.timestamp.clone(),
            rows: rows.map_err(|error| failed("write events as JSON", error))?,
            overview: OverviewChange::from_events(events),
        }))
    }

    pub(crate) fn out_of_order(&self) -> StoreError {
        StoreError::OutOfOrder { conversation: self.conversation.clone(), id: self.first }
    }
}
