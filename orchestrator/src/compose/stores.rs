//! The stores of this machine: files in the state folder, or a PostgreSQL database that several
//! hosts share.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{
    ConversationLock, ConversationLocks, Conversations, HostError, LockGuard, ProfileStore,
};
use engine::events::{EventStore, StoreError};
use protocol::ConversationId;
use secrecy::ExposeSecret as _;
use storage::postgres::{LeaseTiming, PoolUsage, PostgresOptions};
use storage::schema::{SchemaFile, SchemaMigration, migrate_database};
use storage::{
    BlobStore, EncryptedDocuments, PostgresStore, SealedDocuments, SealedError, SealingKey,
    SqliteAccounts, SqliteOptions,
};

use super::StateDir;
use super::accounts::Accounts;
use super::profiles;
use crate::config::{BlobPlace, Config};

/// Name of the file of users and the audit log in the state folder.
const ACCOUNTS_FILE: &str = "accounts.db";

/// The stores. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Stores {
    state_dir: StateDir,
    sqlite: SqliteOptions,
    lease_duration: Duration,
    /// `None` if event logs are in the state folder.
    shared: Option<Arc<PostgresStore>>,
}

impl Stores {
    /// Connects to the database, if one is configured.
    pub(crate) async fn open(config: &Config, state_dir: &StateDir) -> anyhow::Result<Self> {
        Self::connect(config, state_dir, None, open_blobs(config, state_dir)?).await
    }

    /// Like [`open`](Self::open), to copy conversations of another store into this one. Both may
    /// have the same blobs, so that those of a copy that failed are kept.
    pub(crate) async fn open_target(config: &Config, state_dir: &StateDir) -> anyhow::Result<Self> {
        let blobs = open_blobs(config, state_dir)?.map(BlobStore::without_removal);
        Self::connect(config, state_dir, None, blobs).await
    }

    /// Like [`open`](Self::open), for a server that other hosts reach at an address.
    pub(crate) async fn open_at(
        config: &Config,
        state_dir: &StateDir,
        address: Option<String>,
    ) -> anyhow::Result<Self> {
        Self::connect(config, state_dir, address, open_blobs(config, state_dir)?).await
    }

    async fn connect(
        config: &Config,
        state_dir: &StateDir,
        address: Option<String>,
        blobs: Option<BlobStore>,
    ) -> anyhow::Result<Self> {
        let lease_duration = config.store.lease_duration;
        let lease_timing = LeaseTiming {
            duration: lease_duration,
            renewal_interval: lease_duration / 3,
            safety_margin: lease_duration / 9,
        };
        let sqlite = SqliteOptions {
            durability: config.durability,
            blobs: blobs.clone(),
        };
        let options = PostgresOptions {
            lease_timing,
            address,
            blobs,
            ..PostgresOptions::default()
        };
        let shared = match &config.store.url {
            Some(url) => Some(Arc::new(
                PostgresStore::open(url.expose_secret(), options).await?,
            )),
            None => None,
        };
        Ok(Self {
            state_dir: state_dir.clone(),
            sqlite,
            lease_duration,
            shared,
        })
    }

    /// Checks that large events can be stored and read, if they are not in the database.
    pub(crate) async fn check_blobs(&self) -> Result<(), StoreError> {
        match &self.sqlite.blobs {
            Some(blobs) => blobs.check().await,
            None => Ok(()),
        }
    }

    /// Opens the event logs.
    pub(crate) async fn events(&self) -> anyhow::Result<Arc<dyn EventStore>> {
        match &self.shared {
            Some(shared) => Ok(Arc::clone(shared) as Arc<dyn EventStore>),
            None => Ok(self.state_dir.store(self.sqlite.clone()).await?),
        }
    }

    /// Opens the event logs to read them, even if their file cannot be written.
    pub(crate) async fn events_to_read(&self) -> anyhow::Result<Arc<dyn EventStore>> {
        match &self.shared {
            Some(shared) => Ok(Arc::clone(shared) as Arc<dyn EventStore>),
            None => Ok(self.state_dir.store_to_read(self.sqlite.clone()).await?),
        }
    }

    /// Returns the conversations, with their folders in the state folder.
    pub(crate) async fn conversations(&self) -> anyhow::Result<Conversations> {
        Ok(self.conversations_of(self.events().await?))
    }

    /// Returns the conversations of a store that was opened here.
    pub(crate) fn conversations_of(&self, events: Arc<dyn EventStore>) -> Conversations {
        Conversations::new(events, self.locks(), Arc::new(self.state_dir.clone()))
    }

    /// Returns the locks of conversations.
    pub(crate) fn locks(&self) -> Arc<dyn ConversationLocks> {
        let state_dir = self.state_dir.clone();
        match &self.shared {
            Some(shared) => Arc::new(LeasedLocks {
                state_dir,
                shared: Arc::clone(shared),
            }),
            None => Arc::new(state_dir),
        }
    }

    /// Opens the users and the audit log.
    pub(crate) async fn accounts(&self) -> anyhow::Result<Accounts> {
        match &self.shared {
            Some(shared) => Ok(Accounts::new(shared.accounts())),
            None => Accounts::of_file(SqliteAccounts::open(self.accounts_file()).await),
        }
    }

    /// Opens the users and the audit log to read them, even if their file cannot be written. `None`
    /// if the state folder never had any.
    pub(crate) async fn accounts_to_read(&self) -> anyhow::Result<Option<Accounts>> {
        match &self.shared {
            Some(shared) => Ok(Some(Accounts::new(shared.accounts()))),
            None if self.has(ACCOUNTS_FILE) => {
                Accounts::of_file(SqliteAccounts::open_to_read(self.accounts_file()).await)
                    .map(Some)
            }
            None => Ok(None),
        }
    }

    fn accounts_file(&self) -> PathBuf {
        self.state_dir.path().join(ACCOUNTS_FILE)
    }

    /// Opens the settings and secrets of users. Fails if they were encrypted with another key.
    pub(crate) async fn profiles(&self) -> anyhow::Result<Arc<dyn ProfileStore>> {
        profiles::open_with_key(&self.state_dir, |key| self.documents(key)).await
    }

    /// Like [`profiles`](Self::profiles). `None` if no settings were ever stored in the state
    /// folder.
    pub(crate) async fn profiles_if_any(&self) -> anyhow::Result<Option<Arc<dyn ProfileStore>>> {
        if self.has(profiles::FILE_NAME) {
            self.profiles().await.map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the settings and secrets of users without their key. `None` if none were ever stored
    /// in the state folder.
    pub(crate) async fn encrypted_settings_if_any(
        &self,
    ) -> anyhow::Result<Option<EncryptedDocuments>> {
        match &self.shared {
            Some(shared) => Ok(Some(shared.encrypted_documents())),
            None if self.has(profiles::FILE_NAME) => {
                let opened =
                    EncryptedDocuments::open(self.state_dir.path().join(profiles::FILE_NAME)).await;
                opened.map(Some).map_err(profiles::explain)
            }
            None => Ok(None),
        }
    }

    /// Returns the key of settings and secrets. `None` if there is none yet.
    pub(crate) fn settings_key(&self) -> anyhow::Result<Option<SealingKey>> {
        profiles::find_key(&self.state_dir)
    }

    /// Opens the settings and secrets of users to add some that were encrypted with this key.
    pub(crate) async fn settings(&self, key: SealingKey) -> anyhow::Result<SealedDocuments> {
        self.documents(key).await.map_err(profiles::explain)
    }

    async fn documents(&self, key: SealingKey) -> Result<SealedDocuments, SealedError> {
        match &self.shared {
            Some(shared) => shared.documents(key).await,
            None => {
                SealedDocuments::open(self.state_dir.path().join(profiles::FILE_NAME), key).await
            }
        }
    }

    /// Explains an error of settings that cannot be added.
    pub(crate) fn explain_settings_error(error: SealedError) -> anyhow::Error {
        profiles::explain(error)
    }

    /// Whether a part of the store exists: in a database always.
    fn has(&self, file: &str) -> bool {
        self.shared.is_some() || self.state_dir.path().join(file).exists()
    }

    /// Whether the store is a PostgreSQL database.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Migrates the schema of the configured store. Returns the name and the versions of each of
    /// its parts that exist.
    pub(crate) async fn migrate(
        config: &Config,
        state_dir: &StateDir,
    ) -> anyhow::Result<Vec<(&'static str, SchemaMigration)>> {
        const FILES: [(&str, SchemaFile); 3] = [
            (StateDir::EVENTS_FILE, SchemaFile::Events),
            (ACCOUNTS_FILE, SchemaFile::Accounts),
            (profiles::FILE_NAME, SchemaFile::Documents),
        ];
        let mut migrations = Vec::new();
        if let Some(url) = &config.store.url {
            let migration =
                migrate_database(url.expose_secret(), PostgresOptions::default()).await?;
            return Ok(vec![("the database", migration)]);
        }
        for (name, file) in FILES {
            let path = state_dir.path().join(name);
            if path.exists() {
                migrations.push((name, file.migrate(path).await?));
            }
        }
        Ok(migrations)
    }

    /// Returns the locks that keep other processes from running a conversation of either store.
    pub(crate) fn locks_with(&self, other: &Self) -> Arc<dyn ConversationLocks> {
        // The locks of a database include those of the state folder, which cannot be acquired
        // twice.
        match (&self.shared, &other.shared) {
            _ if self.state_dir.path() != other.state_dir.path() => {
                Arc::new(BothLocks([self.locks(), other.locks()]))
            }
            (Some(_), _) => self.locks(),
            (None, _) => other.locks(),
        }
    }

    /// Returns how often this host looks for conversations of hosts that ended. `None` if no other
    /// host can have some.
    pub(crate) fn takeover_interval(&self) -> Option<Duration> {
        self.shared.as_ref().map(|_| self.lease_duration / 9)
    }

    /// Returns the use of the connections to the database. `None` if there is none.
    pub(crate) fn pool_usage(&self) -> Option<PoolUsage> {
        self.shared.as_ref().map(|shared| shared.pool_usage())
    }

    /// Writes what is queued, and releases the leases of conversations that no longer run. Without
    /// this, other hosts wait until they expire.
    pub(crate) async fn close(&self) {
        if let Some(shared) = &self.shared {
            shared.close().await;
        }
    }
}

/// Opens the place of large events. `None` if they are in the database.
fn open_blobs(config: &Config, state_dir: &StateDir) -> anyhow::Result<Option<BlobStore>> {
    Ok(match &config.store.blobs {
        BlobPlace::Default if config.store.url.is_some() => None,
        BlobPlace::Default => Some(BlobStore::folder(BlobPlace::default_folder(
            state_dir.path(),
        ))),
        BlobPlace::Folder(folder) => Some(BlobStore::folder(folder)),
        BlobPlace::S3(options) => {
            Some(BlobStore::s3(options).context("cannot use the place of blobs (store.blobs)")?)
        }
    })
}

/// Locks of conversations in a shared database: a lease, and the lock of this machine, which its
/// programs on other stores look at before they remove a sandbox. A process of this machine that
/// has stopped, so that its lease has expired, may still hold that.
struct LeasedLocks {
    state_dir: StateDir,
    shared: Arc<PostgresStore>,
}

#[async_trait]
impl ConversationLocks for LeasedLocks {
    async fn lock(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ConversationLock>, HostError> {
        let lease = self
            .shared
            .leases()
            .acquire(conversation)
            .await
            .map_err(lease_error)?;
        let Some(lease) = lease else { return Ok(None) };
        let own = ConversationLocks::lock(&self.state_dir, conversation).await?;
        if own.is_none() && !lease.is_takeover() {
            return Ok(None);
        }
        let lost = lease.lost().clone();
        // The lease is dropped last: who acquires it on this machine needs the other lock too.
        Ok(Some(ConversationLock {
            guard: Box::new((own.map(|own| own.guard), lease)),
            lost,
        }))
    }

    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError> {
        self.state_dir.lock_folder(folder)
    }

    async fn locked(
        &self,
        conversations: &[ConversationId],
    ) -> Result<BTreeSet<ConversationId>, HostError> {
        let leases = self.shared.leases();
        let (held, expired) = (leases.held().await, leases.expired().await);
        let (held, expired) = (held.map_err(lease_error)?, expired.map_err(lease_error)?);
        let mut locked = self.state_dir.locked(conversations).await?;
        locked.retain(|id| !expired.contains(id));
        locked.extend(held.into_iter().filter(|id| conversations.contains(id)));
        Ok(locked)
    }

    async fn other_holder(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<String>, HostError> {
        self.shared
            .leases()
            .other_holder(conversation)
            .await
            .map_err(lease_error)
    }

    async fn wait_until_released(&self, conversation: &ConversationId) {
        self.shared.leases().wait_until_released(conversation).await;
    }
}

/// Locks of a conversation that is in two stores.
struct BothLocks([Arc<dyn ConversationLocks>; 2]);

#[async_trait]
impl ConversationLocks for BothLocks {
    async fn lock(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ConversationLock>, HostError> {
        let [first, second] = &self.0;
        let Some(first) = first.lock(conversation).await? else {
            return Ok(None);
        };
        let Some(second) = second.lock(conversation).await? else {
            return Ok(None);
        };
        // An append to a store whose lock is lost fails, so that only the user of a lock must watch
        // it.
        Ok(Some(ConversationLock {
            guard: Box::new((first.guard, second.guard)),
            lost: second.lost,
        }))
    }

    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError> {
        self.0[0].lock_folder(folder)
    }

    async fn locked(
        &self,
        conversations: &[ConversationId],
    ) -> Result<BTreeSet<ConversationId>, HostError> {
        let [first, second] = &self.0;
        let mut locked = first.locked(conversations).await?;
        locked.extend(second.locked(conversations).await?);
        Ok(locked)
    }
}

fn lease_error(error: StoreError) -> HostError {
    HostError::Failed(error.into())
}
