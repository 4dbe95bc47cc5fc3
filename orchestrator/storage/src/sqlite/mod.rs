//! Event store of a single host: all conversations in one SQLite file.
//!
//! One thread writes, because SQLite allows one writer. It commits all queued changes together. Readers have their own
//! connections. Readers and the writer do not block each other (write-ahead log). Several processes may use the same file, as
//! long as each conversation is appended to by one of them.
//!
//! An event that [`append`](EventStore::append) has acknowledged survives the death of the process, also by `kill -9`. By default
//! a commit is not synced to the disk (`synchronous = NORMAL`), so a power failure may lose the newest acknowledged events, in
//! whole transactions, back to the last checkpoint (by default 1,000 pages, 4 MiB). It never corrupts the file or leaves a gap.
//! [`Durability::PowerCut`] syncs every commit.
//!
//! Dropping the store commits all queued changes, and blocks until then.

mod append;
mod catch_up;
mod list;
pub(crate) mod migrations;
pub(crate) mod open;
mod overview;
mod read;
mod readers;
mod remove;
mod writer;

use std::path::PathBuf;

use async_trait::async_trait;
use engine::events::{
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation, StoreError,
};
use protocol::{ConversationId, Event, EventId};

use open::Location;
pub use open::OpenError;
use readers::Readers;
use writer::{Change, Writer};

use crate::event_batch::EventBatch;
use crate::failure::failed;
use crate::schema_migration::SchemaMigration;

/// Failures that an acknowledged append survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The death of the process.
    #[default]
    ProcessDeath,
    /// Also a power failure. Concurrent appends share a sync of the disk.
    PowerCut,
}

/// Event store in a SQLite file.
pub struct SqliteStore {
    /// `None` if the file can only be read.
    writer: Option<Writer>,
    readers: Readers,
}

/// Error of a change of a store that is open for reading.
#[derive(Debug, thiserror::Error)]
#[error("the file {} cannot be written", .0.display())]
struct ReadOnly(PathBuf);

impl SqliteStore {
    /// Opens the file. Creates the file (mode 0600), its folder (mode 0700) and its tables if they do not exist.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(file: impl Into<PathBuf>, durability: Durability) -> Result<Self, OpenError> {
        Self::open_with(Location::new(file.into(), durability), Self::open_blocking).await
    }

    /// Opens the file for reading. If the file or its folder cannot be written, nothing is created or migrated, and every change
    /// fails.
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

    /// Migrates an existing file.
    pub(crate) fn migrate(file: PathBuf) -> Result<SchemaMigration, OpenError> {
        let location = Location::new(file, Durability::PowerCut);
        let mut connection = location.connect()?;
        location.check_writable(&connection)?;
        migrations::run(&mut connection, &location)
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
        catch_up::run(&mut connection);
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
            None => Err(failed(writer::OPERATION, ReadOnly(self.readers.file().to_owned()))),
        }
    }
}

#[async_trait]
impl EventStore for SqliteStore {
    /// If the future is dropped, the events may still be appended.
    async fn append(&self, conversation: &ConversationId, events: &[Event]) -> Result<(), StoreError> {
        match EventBatch::new(conversation, events)? {
            Some(batch) => self.change(Change::Append(Box::new(batch))).await,
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

    async fn find(&self, conversation: &ConversationId) -> Result<Option<ListedConversation>, StoreError> {
        let conversation = conversation.clone();
        self.readers.with(move |connection| list::find(connection, &conversation)).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        let query = query.clone();
        self.readers.with(move |connection| list::conversations(connection, &query)).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.readers.with(read::conversations).await
    }

    /// If the future is dropped, the conversation may still be removed.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.change(Change::Remove(conversation.clone())).await
    }
}
