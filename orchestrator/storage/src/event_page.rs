//! Pages of events of which some are in blobs.

use engine::events::StoreError;
use futures_util::{StreamExt as _, TryStreamExt as _};
use protocol::{ConversationId, Event, EventId};

use crate::blobs::{BlobError, BlobReference, BlobStore, CONCURRENT_BLOBS};
use crate::failure::failed;
use crate::stored_event::{self, Damage};

const READ: &str = "read a blob";

/// The rows of a page, as the database has them.
#[derive(Default)]
pub(crate) struct EventPage {
    /// The events whose rows have their JSON, in order.
    events: Vec<Event>,
    /// The other ones, in order.
    blobs: Vec<BlobRow>,
    /// Length of the JSON of both.
    size_bytes: usize,
}

/// The row of an event in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlobRow {
    id: EventId,
    reference: BlobReference,
}

/// Why no blob can be read.
#[derive(Debug, thiserror::Error)]
#[error("the event is in a blob, and no place of blobs is configured (store.blobs)")]
struct NoBlobStore;

impl EventPage {
    /// Adds the row of event `id`: its JSON, or the text of the reference to its blob.
    pub(crate) fn add_row(
        &mut self,
        id: EventId,
        json: &[u8],
        blob: Option<&[u8]>,
    ) -> Result<(), Damage> {
        match blob {
            None => {
                self.events
                    .push(stored_event::parse(id, json, self.events.last())?);
                self.size_bytes = self.size_bytes.saturating_add(json.len());
            }
            Some(text) => {
                let text = std::str::from_utf8(text).map_err(|_| Damage::UnreadableReference)?;
                let reference: BlobReference =
                    text.parse().map_err(|_| Damage::UnreadableReference)?;
                self.size_bytes = self.size_bytes.saturating_add(reference.length_bytes());
                self.blobs.push(BlobRow { id, reference });
            }
        }
        Ok(())
    }

    /// Returns the length of the JSON of all events, also of those in blobs.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Returns the events if none is in a blob, else the page.
    pub(crate) fn without_blobs(self) -> Result<Vec<Event>, Self> {
        if self.blobs.is_empty() {
            Ok(self.events)
        } else {
            Err(self)
        }
    }

    /// Reads a page with its blobs. A conversation may be removed between both; then the page is
    /// read again.
    pub(crate) async fn read_whole<F>(
        blobs: Option<&BlobStore>,
        conversation: &ConversationId,
        read: impl Fn() -> F,
    ) -> Result<Vec<Event>, StoreError>
    where
        F: Future<Output = Result<Self, StoreError>>,
    {
        let page = read().await?;
        let rows = page.blobs.clone();
        match page.with_blobs(blobs, conversation).await {
            Err(error @ StoreError::Damaged { .. }) => {
                let page = read().await?;
                if page.blobs == rows {
                    Err(error)
                } else {
                    page.with_blobs(blobs, conversation).await
                }
            }
            result => result,
        }
    }

    /// Adds the events in blobs, and returns all.
    pub(crate) async fn with_blobs(
        self,
        blobs: Option<&BlobStore>,
        conversation: &ConversationId,
    ) -> Result<Vec<Event>, StoreError> {
        let Self {
            mut events,
            blobs: rows,
            size_bytes: _,
        } = self;
        if rows.is_empty() {
            return Ok(events);
        }
        let blobs = configured(blobs)?;
        let reading =
            futures_util::stream::iter(rows.into_iter().map(|row| row.read(blobs, conversation)));
        let mut read: Vec<Event> = reading.buffered(CONCURRENT_BLOBS).try_collect().await?;
        events.append(&mut read);
        events.sort_by_key(|event| event.id);
        Ok(events)
    }

    /// Like [`with_blobs`](Self::with_blobs), but returns only the events before the first whose
    /// blob is damaged.
    pub(crate) async fn with_blobs_up_to_damage(
        self,
        blobs: Option<&BlobStore>,
        conversation: &ConversationId,
    ) -> Result<Vec<Event>, StoreError> {
        let Self {
            mut events,
            blobs: rows,
            size_bytes: _,
        } = self;
        for row in rows {
            match row.read(configured(blobs)?, conversation).await {
                Ok(event) => events.push(event),
                Err(StoreError::Damaged { id, .. }) => {
                    tracing::debug!(%conversation, %id, "an overview ends before a damaged event");
                    events.retain(|event| event.id < id);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        events.sort_by_key(|event| event.id);
        Ok(events)
    }
}

fn configured(blobs: Option<&BlobStore>) -> Result<&BlobStore, StoreError> {
    blobs.ok_or_else(|| failed(READ, NoBlobStore))
}

impl BlobRow {
    async fn read(
        self,
        blobs: &BlobStore,
        conversation: &ConversationId,
    ) -> Result<Event, StoreError> {
        let Self { id, reference } = self;
        let damaged = |damage: Damage| StoreError::Damaged {
            conversation: conversation.clone(),
            id,
            source: Box::new(damage),
        };
        let content = match blobs.get(conversation, &reference).await {
            Ok(content) => content,
            Err(BlobError::Missing(source)) => return Err(damaged(Damage::MissingBlob(source))),
            Err(BlobError::Altered) => return Err(damaged(Damage::AlteredBlob)),
            Err(error) => return Err(failed(READ, error)),
        };
        // On another thread, because megabytes take milliseconds.
        let parsing = tokio::task::spawn_blocking(move || parse(id, &reference, &content));
        parsing
            .await
            .map_err(|error| failed(READ, error))?
            .map_err(damaged)
    }
}

fn parse(id: EventId, reference: &BlobReference, content: &[u8]) -> Result<Event, Damage> {
    if BlobReference::to_content(content) != *reference {
        return Err(Damage::AlteredBlob);
    }
    stored_event::parse(id, content, None)
}
