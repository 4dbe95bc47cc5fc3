//! The event store of a single host: all conversations in one SQLite file.
//!
//! One thread writes, because SQLite has one writer anyway: it takes what is queued and commits it together. Readers
//! have connections of their own, and neither side waits for the other (write-ahead log). Several processes may use
//! one file, as long as each conversation is appended to by one of them.
//!
//! What [`append`](EventStore::append) has acknowledged survives the death of the process, `kill -9` included: the
//! operating system holds it. Unless [`Durability::PowerCut`] is asked for it is not forced to the disk with every commit
//! (`synchronous = NORMAL`), so a power cut may lose the newest acknowledged events, in whole transactions, back to the last
//! checkpoint (by default 1,000 pages, 4 MiB). It never damages the file nor leaves a gap.
//!
//! Dropping the store commits what is queued, then ends the writer; the drop waits for that.

mod append;
mod migrations;
mod open;
mod read;
mod readers;
mod writer;

use std::path::PathBuf;

use async_trait::async_trait;
use engine::events::{ConversationSummary, EventStore, StoreError};
use protocol::{ConversationId, Event, EventId};

use append::Append;
use open::Location;
pub use open::OpenError;
use readers::Readers;
use writer::Writer;

/// What an append that is acknowledged survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process: the operating system holds it.
    #[default]
    ProcessDeath,
    /// A power cut too: the disk holds it. Appends that come at once wait for the disk together.
    PowerCut,
}

/// Logs in one SQLite file.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
}

impl SqliteStore {
    /// Opens the file; creates it (mode 0600), its folder (mode 0700) and its tables when they are not there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(file: impl Into<PathBuf>, durability: Durability) -> Result<Self, OpenError> {
        let location = Location::new(file.into(), durability);
        let subject = location.clone();
        tokio::task::spawn_blocking(move || Self::open_blocking(location))
            .await
            .unwrap_or_else(|source| Err(OpenError::Aborted { file: subject.into_file(), source }))
    }

    fn open_blocking(location: Location) -> Result<Self, OpenError> {
        location.create()?;
        let mut connection = location.connect()?;
        migrations::run(&mut connection, &location)?;
        let writer = Writer::start(connection, &location)?;
        Ok(Self { writer, readers: Readers::new(location) })
    }
}

#[async_trait]
impl EventStore for SqliteStore {
    /// A dropped call may still be carried out: what is queued is committed.
    async fn append(&self, conversation: &ConversationId, events: &[Event]) -> Result<(), StoreError> {
        match Append::new(conversation, events)? {
            Some(append) => self.writer.append(append).await,
            None => Ok(()),
        }
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let conversation = conversation.clone();
        self.readers.with(move |connection| read::events(connection, &conversation, from, limit)).await
    }

    async fn conversations(&self) -> Result<Vec<ConversationSummary>, StoreError> {
        self.readers.with(read::conversations).await
    }
}

/// A failure of the storage itself, as the engine sees it.
fn failed(doing: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Storage { doing, source: source.into() }
}
