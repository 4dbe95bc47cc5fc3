//! Event store of a single host: all conversations in one SQLite file.
//!
//! One thread writes, because SQLite allows one writer. It commits all queued changes together.
//! Readers have their own connections. Readers and the writer do not block each other (write-ahead
//! log). Several processes may use the same file, as long as each conversation is appended to by
//! one of them.
//!
//! An event that [`append`](EventStore::append) has acknowledged survives the death of the process,
//! also by `kill -9`. By default a commit is not synced to the disk (`synchronous = NORMAL`), so a
//! power failure may lose the newest acknowledged events, in whole transactions, back to the last
//! checkpoint (by default 1,000 pages, 4 MiB). It never corrupts the file or leaves a gap.
//! [`Durability::PowerCut`] syncs every commit.
//!
//! Large events are in a [`BlobStore`], if there is one.
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
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation,
    StoreError,
};
use protocol::{ConversationId, Event, EventId};
use rusqlite::Connection;

pub use open::OpenError;
use open::{Location, open_blocking};
use readers::Readers;
use writer::{Change, Writer};

use crate::blobs::BlobStore;
use crate::event_batch::EventBatch;
use crate::event_page::EventPage;
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

/// How to open a SQLite store.
#[derive(Clone, Default)]
pub struct SqliteOptions {
    /// Failures that an acknowledged append survives.
    pub durability: Durability,
    /// Where large events are. `None` if they are in the file.
    pub blobs: Option<BlobStore>,
}

impl From<Durability> for SqliteOptions {
    /// Options of a store without blobs.
    fn from(durability: Durability) -> Self {
        Self {
            durability,
            blobs: None,
        }
    }
}

/// Event store in a SQLite file.
pub struct SqliteStore {
    blobs: Option<BlobStore>,
    /// `None` if the file can only be read.
    writer: Option<Writer>,
    readers: Readers,
}

/// Error of a change of a store that is open for reading.
#[derive(Debug, thiserror::Error)]
#[error("the file {} cannot be written", .0.display())]
struct ReadOnly(PathBuf);

impl SqliteStore {
    /// Opens the file. Creates the file (mode 0600), its folder (mode 0700) and its tables if they
    /// do not exist.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
        file: impl Into<PathBuf>,
        options: impl Into<SqliteOptions>,
    ) -> Result<Self, OpenError> {
        Self::open_with(file.into(), options.into(), |location, blobs| {
            let (connection, _) = migrations::open(&location, migrations::EVENTS)?;
            Self::with_connection(connection, location, blobs)
        })
        .await
    }

    /// Opens the file for reading. If the file or its folder cannot be written, nothing is created
    /// or migrated, and every change fails.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_to_read(
        file: impl Into<PathBuf>,
        options: impl Into<SqliteOptions>,
    ) -> Result<Self, OpenError> {
        Self::open_with(file.into(), options.into(), |location, blobs| {
            match migrations::open_to_read(&location, migrations::EVENTS)? {
                (_, Some(read_only)) => Ok(Self {
                    blobs,
                    writer: None,
                    readers: Readers::new(read_only),
                }),
                (connection, None) => Self::with_connection(connection, location, blobs),
            }
        })
        .await
    }

    /// Migrates an existing file.
    pub(crate) fn migrate(file: PathBuf) -> Result<SchemaMigration, OpenError> {
        let location = Location::new(file, Durability::PowerCut);
        migrations::open(&location, migrations::EVENTS).map(|(_, migration)| migration)
    }

    async fn open_with(
        file: PathBuf,
        SqliteOptions { durability, blobs }: SqliteOptions,
        open: impl FnOnce(Location, Option<BlobStore>) -> Result<Self, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        open_blocking(file, move |file| {
            open(Location::new(file, durability), blobs)
        })
        .await
    }

    fn with_connection(
        mut connection: Connection,
        location: Location,
        blobs: Option<BlobStore>,
    ) -> Result<Self, OpenError> {
        catch_up::run(&mut connection, blobs.as_ref());
        let writer = Some(Writer::start(connection, &location)?);
        Ok(Self {
            blobs,
            writer,
            readers: Readers::new(location),
        })
    }

    /// Reads the rows of a page.
    async fn read_rows(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<EventPage, StoreError> {
        let conversation = conversation.clone();
        self.readers
            .with(move |connection| {
                read::events(connection, &conversation, (from, limit), max_bytes)
            })
            .await
    }

    async fn change(&self, change: Change) -> Result<(), StoreError> {
        match &self.writer {
            Some(writer) => writer.perform(change).await,
            None => Err(failed(
                writer::OPERATION,
                ReadOnly(self.readers.file().to_owned()),
            )),
        }
    }
}

#[async_trait]
impl EventStore for SqliteStore {
    /// If the future is dropped, the events may still be appended.
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        let Some(mut batch) = EventBatch::new(conversation, events)? else {
            return Ok(());
        };
        if let Some(blobs) = self.blobs.as_ref().filter(|_| self.writer.is_some()) {
            batch.store_blobs(blobs).await?;
        }
        self.change(Change::Append(Box::new(batch))).await
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let read = || self.read_rows(conversation, from, limit, max_bytes);
        EventPage::read_whole(self.blobs.as_ref(), conversation, read).await
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        let conversation = conversation.clone();
        self.readers
            .with(move |connection| list::find(connection, &conversation))
            .await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        let query = query.clone();
        self.readers
            .with(move |connection| list::conversations(connection, &query))
            .await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.readers.with(read::conversations).await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.change(Change::Touch).await?;
        match &self.blobs {
            Some(blobs) => blobs.check().await,
            None => Ok(()),
        }
    }

    /// If the future is dropped, the conversation may still be removed, and its blobs may remain.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        if let Some(blobs) = &self.blobs {
            blobs.prepare_removal(conversation).await?;
        }
        self.change(Change::Remove(conversation.clone())).await?;
        match &self.blobs {
            Some(blobs) => blobs.remove(conversation).await,
            None => Ok(()),
        }
    }
}
