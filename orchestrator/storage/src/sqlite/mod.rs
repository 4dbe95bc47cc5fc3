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
mod remove;
mod writer;

use std::path::PathBuf;

use async_trait::async_trait;
use engine::events::{ConversationList, EventStore, StoreError};
use protocol::{ConversationId, Event, EventId};

use append::Append;
use open::Location;
pub use open::OpenError;
use readers::Readers;
use writer::{Change, Writer};

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
    /// `None` if the file can only be read.
    writer: Option<Writer>,
    readers: Readers,
}

/// Why a store that was opened to be read takes no events.
#[derive(Debug, thiserror::Error)]
#[error("the file {} cannot be written", .0.display())]
struct ReadOnly(PathBuf);

impl SqliteStore {
    /// Opens the file; creates it (mode 0600), its folder (mode 0700) and its tables when they are not there.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(file: impl Into<PathBuf>, durability: Durability) -> Result<Self, OpenError> {
        Self::open_with(Location::new(file.into(), durability), Self::open_blocking).await
    }

    /// Opens the file to read it. Where the file or its folder cannot be written, nothing is created or migrated, and
    /// every change of the store fails.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_to_read(file: impl Into<PathBuf>, durability: Durability) -> Result<Self, OpenError> {
        let open = |location: Location| match Self::open_blocking(location.clone()) {
            Err(error) if error.may_be_read_only() && location.file().exists() => {
                Self::open_read_only(&location)
            }
            opened => opened,
        };
        Self::open_with(Location::new(file.into(), durability), open).await
    }

    async fn open_with(
        location: Location,
        open: impl FnOnce(Location) -> Result<Self, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let subject = location.clone();
        tokio::task::spawn_blocking(move || open(location))
            .await
            .unwrap_or_else(|source| Err(OpenError::Aborted { file: subject.into_file(), source }))
    }

    fn open_blocking(location: Location) -> Result<Self, OpenError> {
        location.create()?;
        let mut connection = location.connect()?;
        location.check_writable(&connection)?;
        migrations::run(&mut connection, &location)?;
        let writer = Some(Writer::start(connection, &location)?);
        Ok(Self { writer, readers: Readers::new(location) })
    }

    fn open_read_only(location: &Location) -> Result<Self, OpenError> {
        let location = location.read_only()?;
        migrations::check(&location.connect()?, &location)?;
        Ok(Self { writer: None, readers: Readers::new(location) })
    }

    async fn change(&self, change: Change) -> Result<(), StoreError> {
        match &self.writer {
            Some(writer) => writer.perform(change).await,
            None => Err(failed(writer::DOING, ReadOnly(self.readers.file().to_owned()))),
        }
    }
}

#[async_trait]
impl EventStore for SqliteStore {
    /// A dropped call may still be carried out: what is queued is committed.
    async fn append(&self, conversation: &ConversationId, events: &[Event]) -> Result<(), StoreError> {
        match Append::new(conversation, events)? {
            Some(append) => self.change(Change::Append(append)).await,
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

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.readers.with(read::conversations).await
    }

    /// A dropped call may still be carried out, as for an append.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.change(Change::Remove(conversation.clone())).await
    }
}

/// A failure of the storage itself, as the engine sees it.
fn failed(doing: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::Storage { doing, source: source.into() }
}
