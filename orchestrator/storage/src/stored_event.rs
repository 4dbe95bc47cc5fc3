//! Parses stored events, and names their damage.

use std::error::Error;

use protocol::{Event, EventId};

/// Damage of a stored event.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("its row is missing")]
    Missing,
    #[error("its row holds event {0}")]
    Misplaced(EventId),
    #[error("its row holds no event")]
    Unreadable(#[from] serde_json::Error),
    #[error("its row refers to no blob")]
    UnreadableReference,
    #[error("its blob is missing")]
    MissingBlob(#[source] Box<dyn Error + Send + Sync>),
    #[error("its blob was altered")]
    AlteredBlob,
}

/// Parses the JSON of event `id`. The `previous` event of the log may share text with it.
pub(crate) fn parse(id: EventId, json: &[u8], previous: Option<&Event>) -> Result<Event, Damage> {
    let event = Event::read_after(previous, json)?;
    if event.id == id {
        Ok(event)
    } else {
        Err(Damage::Misplaced(event.id))
    }
}
