//! Event store of several hosts: all conversations in one PostgreSQL database, version 12 or later.
//!
//! One task writes: it commits the queued appends of all conversations of this process together.
//! Readers have a pool of their own, so that slow reads delay neither appends nor renewals of
//! leases. An event that [`append`](EventStore::append) has acknowledged is as durable as a commit
//! of the server, by default on its disk.
//!
//! Large events are in a [`BlobStore`], if there is one.
//!
//! Hosts coordinate by [`Leases`]. [`subscribe`](EventStore::subscribe) wakes readers of logs that
//! other hosts append to.
//!
//! After a restart of PostgreSQL the store connects again. Reads are repeated. An append whose
//! connection broke fails, unless the log shows that it was committed; it is never sent twice. If
//! the server remains unavailable, the append fails although it may have been committed: the log
//! has the answer later.
//!
//! [`close`](PostgresStore::close) writes what is queued and releases dropped leases. Dropping the
//! store lets its tasks do the same without waiting for them.

mod accounts;
mod append;
mod catch_up;
mod connector;
mod database;
mod documents;
mod leases;
mod list;
mod migrations;
mod open;
mod overview;
mod read;
mod remove;
mod wakeups;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::events::{
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation,
    StoreError,
};
use protocol::{ConversationId, Event, EventId};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use accounts::PostgresAccounts;
use append::FencedBatch;
use connector::Connector;
use database::Database;
pub use database::PoolUsage;
use documents::DocumentTable;
use leases::{Fence, LeaseHost};
pub use leases::{Lease, LeaseTiming, Leases};
pub use open::{PostgresOpenError, PostgresOptions};
use wakeups::Wakeups;
use writer::Writer;

use crate::blobs::BlobStore;
use crate::event_batch::EventBatch;
use crate::event_page::EventPage;
use crate::failure::failed;
use crate::schema_migration::SchemaMigration;
use crate::sealed::{EncryptedDocuments, SealedDocuments, SealedError, SealingKey};

/// Connections for reading: more of them compete for the same disk and processors.
const READ_CONNECTIONS: usize = 4;

/// Connections for changes: of the writer, of the leases, and of removals.
const WRITE_CONNECTIONS: usize = 4;

/// Time to write the queue and to release leases when the store is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

const REMOVE: &str = "remove a conversation";
const CHECK: &str = "write to the event store";

/// Event store in a PostgreSQL database.
pub struct PostgresStore {
    reads: Arc<Database>,
    writes: Arc<Database>,
    blobs: Option<BlobStore>,
    writer: Writer,
    leases: Leases,
    wakeups: Wakeups,
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

impl PostgresStore {
    /// Connects to the database at an address such as
    /// `postgres://user:password@host/name?sslmode=require`. Creates or migrates its tables.
    ///
    /// # Errors
    /// See [`PostgresOpenError`].
    pub async fn open(address: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let connector = Connector::new(address, options.roots)?;
        let writes = Arc::new(Database::connect(&connector, WRITE_CONNECTIONS).await?);
        migrate(&writes, &connector).await?;
        let reads = Arc::new(Database::connect(&connector, READ_CONNECTIONS).await?);
        catch_up::run(&reads, &writes, options.blobs.as_ref()).await;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let host = LeaseHost {
            id: Uuid::now_v7(),
            address: options.address,
        };
        let leases = Leases::start(
            Arc::clone(&writes),
            host,
            options.lease_timing,
            &tasks,
            stop.clone(),
        );
        let writer = Writer::start(Arc::clone(&writes), leases.host(), &tasks, stop.clone());
        let wakeups = Wakeups::start(&connector, &tasks, stop.clone());
        let _stop_on_drop = stop.clone().drop_guard();
        let blobs = options.blobs;
        Ok(Self {
            reads,
            writes,
            blobs,
            writer,
            leases,
            wakeups,
            tasks,
            stop,
            _stop_on_drop,
        })
    }

    /// Creates or migrates the tables.
    pub(crate) async fn migrate(
        address: &str,
        options: PostgresOptions,
    ) -> Result<SchemaMigration, PostgresOpenError> {
        let connector = Connector::new(address, options.roots)?;
        let database = Database::connect(&connector, 1).await?;
        let migration = migrate(&database, &connector).await;
        database.close();
        migration
    }

    /// Returns the leases of this host.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns the users of all hosts, and the audit log. Closed with the store.
    pub fn accounts(&self) -> PostgresAccounts {
        PostgresAccounts::new(Arc::clone(&self.reads), Arc::clone(&self.writes))
    }

    /// Opens the encrypted documents of all hosts, which have the same key. Closed with the store.
    ///
    /// # Errors
    /// [`SealedError::WrongKey`] if there is a document of another key, or
    /// [`SealedError::Storage`].
    pub async fn documents(&self, key: SealingKey) -> Result<SealedDocuments, SealedError> {
        let table = DocumentTable::new(Arc::clone(&self.reads), Arc::clone(&self.writes));
        SealedDocuments::with_table("the database".to_owned(), key, Box::new(table)).await
    }

    /// Returns the encrypted documents of all hosts without their key. Closed with the store.
    pub fn encrypted_documents(&self) -> EncryptedDocuments {
        let table = DocumentTable::new(Arc::clone(&self.reads), Arc::clone(&self.writes));
        EncryptedDocuments::with_table(Box::new(table))
    }

    /// Returns the use of all connections of the store's pools.
    pub fn pool_usage(&self) -> PoolUsage {
        self.reads.usage() + self.writes.usage()
    }

    /// Writes the queued appends, releases the dropped leases and closes the connections. Bounded
    /// in time. Later operations fail.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(CLOSE_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("the store was not closed in time");
        }
        self.reads.close();
        self.writes.close();
    }

    /// Returns the generation of this host's lease. `None` if it holds none.
    fn generation(&self, conversation: &ConversationId) -> Result<Option<i64>, StoreError> {
        match self.leases.fence(conversation) {
            Fence::Unleased => Ok(None),
            Fence::Generation(generation) => Ok(Some(generation)),
            Fence::Lost => Err(StoreError::LeaseLost {
                conversation: conversation.clone(),
            }),
        }
    }

    /// Notes that the lease is lost if that is the error of an operation that required this
    /// generation.
    fn check_lease(
        &self,
        conversation: &ConversationId,
        generation: Option<i64>,
        result: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if let (Some(generation), Err(StoreError::LeaseLost { .. })) = (generation, &result) {
            self.leases.report_lost(conversation, generation);
        }
        result
    }
}

/// Migrates the schema, and refuses a newer one.
async fn migrate(
    database: &Database,
    connector: &Connector,
) -> Result<SchemaMigration, PostgresOpenError> {
    const KNOWN: i64 = migrations::SCHEMA_VERSION;
    match database.migrate().await {
        Ok(found) if found > KNOWN => Err(PostgresOpenError::TooNew {
            database: connector.to_string(),
            found,
            known: KNOWN,
        }),
        Ok(found) => Ok(SchemaMigration {
            from: found,
            to: KNOWN,
        }),
        Err(error) if error.is_not_allowed() => {
            let (name, source) = (connector.to_string(), error.into());
            let user = connector
                .config()
                .get_user()
                .unwrap_or("the user")
                .to_owned();
            Err(if database.is_migrated().await {
                PostgresOpenError::NotOwner {
                    database: name,
                    user,
                    source,
                }
            } else {
                PostgresOpenError::NotAllowed {
                    database: name,
                    user,
                    source,
                }
            })
        }
        Err(error) => Err(PostgresOpenError::Migrate {
            database: connector.to_string(),
            version: KNOWN,
            source: error.into(),
        }),
    }
}

#[async_trait]
impl EventStore for PostgresStore {
    /// Without a lease, rejected if another host holds one. If the future is dropped, the events
    /// may still be appended.
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        let Some(mut batch) = EventBatch::new(conversation, events)? else {
            return Ok(());
        };
        let generation = self.generation(conversation)?;
        if let Some(blobs) = &self.blobs {
            batch.store_blobs(blobs).await?;
        }
        let result = self
            .writer
            .append(FencedBatch::new(batch, generation)?)
            .await;
        self.check_lease(conversation, generation, result)
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let read = || read::events(&self.reads, conversation, (from, limit), max_bytes);
        EventPage::read_whole(self.blobs.as_ref(), conversation, read).await
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        list::find(&self.reads, conversation).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        list::conversations(&self.reads, query).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        read::conversations(&self.reads).await
    }

    /// Starts at [`EventId::FIRST`], and lags while PostgreSQL is unavailable. Changes that follow
    /// each other quickly are one.
    fn subscribe(&self, conversation: &ConversationId) -> Option<watch::Receiver<EventId>> {
        Some(self.wakeups.subscribe(conversation))
    }

    /// Writes, because a database that is read-only or has no space left can still be read.
    async fn check_writable(&self) -> Result<(), StoreError> {
        let touched = self
            .writes
            .query("UPDATE glovebox_schema SET version = version", &[])
            .await;
        touched.map_err(|error| failed(CHECK, error))?;
        match &self.blobs {
            Some(blobs) => blobs.check().await,
            None => Ok(()),
        }
    }

    /// Rejected like an append if the lease is lost, or another host holds one.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        let generation = self.generation(conversation)?;
        if let Some(blobs) = &self.blobs {
            blobs.prepare_removal(conversation).await?;
        }
        let removed =
            remove::remove(&self.writes, self.leases.host(), conversation, generation).await;
        let result = removed
            .map_err(|error| failed(REMOVE, error))
            .and_then(|result| result);
        self.check_lease(conversation, generation, result)?;
        match &self.blobs {
            Some(blobs) => blobs.remove(conversation).await,
            None => Ok(()),
        }
    }
}
