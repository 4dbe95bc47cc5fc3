//! Users, keys, sessions and the audit log in a SQLite file of their own, next to the event logs of
//! a single host.
//!
//! Several processes may use the same file: a command line adds and revokes keys while a server
//! reads them. Each change is one transaction, and is synced before it returns, so that a revoked
//! key stays revoked after a power failure. Entries of the audit log survive the death of the
//! process; a power failure may lose the latest.

mod audit;
mod keys;
mod records;
mod sessions;
mod users;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use accounts::{
    AccountRecords, AccountStore, AddedAccounts, AuditEntry, AuditFilter, AuditStore, Key, KeyId,
    SecretHash, Session, StoreFailure, User,
};
use async_trait::async_trait;
use protocol::UserId;
use rusqlite::Connection;

use crate::failure::cause;
use crate::schema_migration::SchemaMigration;
use crate::sqlite::Durability;
use crate::sqlite::migrations;
use crate::sqlite::open::{Location, OpenError, open_blocking};

const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/accounts/0001_users.sql"),
    include_str!("../../migrations/accounts/0002_audit.sql"),
    include_str!("../../migrations/accounts/0003_revoked_keys.sql"),
];

/// Users, keys, sessions and the audit log in a SQLite file. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SqliteAccounts {
    /// A blocking mutex: it is locked only on threads that may block.
    connection: Arc<Mutex<Connection>>,
    /// The connection of the audit log, whose entries are not synced one by one.
    audit: Arc<Mutex<Connection>>,
}

impl SqliteAccounts {
    /// Opens the file. Creates it (mode 0600), its folder (mode 0700) and its tables if they do not
    /// exist.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(file: impl Into<PathBuf>) -> Result<Self, OpenError> {
        open_blocking(file.into(), |file| {
            let location = Location::new(file.clone(), Durability::PowerCut);
            let (connection, _) = migrations::open(&location, MIGRATIONS)?;
            let audit = Location::new(file, Durability::ProcessDeath).connect()?;
            Ok(Self::with_connections(connection, audit))
        })
        .await
    }

    /// Like [`open`](Self::open). If the file or its folder cannot be written, nothing is created
    /// or migrated, and every change fails.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open_to_read(file: impl Into<PathBuf>) -> Result<Self, OpenError> {
        open_blocking(file.into(), |file| {
            let location = Location::new(file, Durability::PowerCut);
            let (connection, read_only) = migrations::open_to_read(&location, MIGRATIONS)?;
            let audit = read_only.unwrap_or(location).connect()?;
            Ok(Self::with_connections(connection, audit))
        })
        .await
    }

    /// Migrates an existing file.
    pub(crate) fn migrate(file: PathBuf) -> Result<SchemaMigration, OpenError> {
        let location = Location::new(file, Durability::PowerCut);
        migrations::open(&location, MIGRATIONS).map(|(_, migration)| migration)
    }

    fn with_connections(connection: Connection, audit: Connection) -> Self {
        Self {
            connection: Arc::new(Mutex::new(connection)),
            audit: Arc::new(Mutex::new(audit)),
        }
    }

    async fn run<T: Send + 'static, E: Into<BoxError> + Send + 'static>(
        &self,
        operation: &'static str,
        run: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, StoreFailure> {
        run_on(&self.connection, operation, run).await
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn run_on<T: Send + 'static, E: Into<BoxError> + Send + 'static>(
    connection: &Arc<Mutex<Connection>>,
    operation: &'static str,
    run: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
) -> Result<T, StoreFailure> {
    let shared = Arc::clone(connection);
    // A panic rolls its transaction back.
    let run = move || run(&mut shared.lock().unwrap_or_else(PoisonError::into_inner));
    let failed = |source: BoxError| StoreFailure {
        operation,
        source: cause(source),
    };
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result.map_err(|error| failed(error.into())),
        Err(error) => Err(failed(error.into())),
    }
}

#[async_trait]
impl AccountStore for SqliteAccounts {
    async fn put_user(&self, name: &UserId, now: u64) -> Result<(), StoreFailure> {
        let name = name.clone();
        self.run("add a user", move |connection| {
            users::put(connection, &name, now)
        })
        .await
    }

    async fn remove_user(&self, name: &UserId, now: u64) -> Result<bool, StoreFailure> {
        let name = name.clone();
        self.run("remove a user", move |connection| {
            users::remove(connection, &name, now)
        })
        .await
    }

    async fn user(&self, name: &UserId) -> Result<Option<User>, StoreFailure> {
        let name = name.clone();
        self.run("read a user", move |connection| {
            users::find(connection, &name)
        })
        .await
    }

    async fn users(&self) -> Result<Vec<User>, StoreFailure> {
        self.run("read the users", |connection| users::all(connection))
            .await
    }

    async fn add_key(
        &self,
        key: &Key,
        hash: &SecretHash,
        max: usize,
    ) -> Result<bool, StoreFailure> {
        let (key, hash) = (key.clone(), *hash);
        self.run("add a key", move |connection| {
            keys::add(connection, &key, &hash, max)
        })
        .await
    }

    async fn remove_key(&self, id: &KeyId) -> Result<bool, StoreFailure> {
        let id = id.clone();
        self.run("revoke a key", move |connection| {
            keys::remove(connection, &id)
        })
        .await
    }

    async fn keys(&self, user: Option<&UserId>) -> Result<Vec<Key>, StoreFailure> {
        let user = user.cloned();
        self.run("read the keys", move |connection| {
            keys::all(connection, user.as_ref())
        })
        .await
    }

    async fn key(&self, id: &KeyId) -> Result<Option<Key>, StoreFailure> {
        let id = id.clone();
        self.run("read a key", move |connection| {
            keys::with_id(connection, &id)
        })
        .await
    }

    async fn find_key(&self, hash: &SecretHash) -> Result<Option<Key>, StoreFailure> {
        let hash = *hash;
        self.run("read a key", move |connection| {
            keys::with_hash(connection, &hash)
        })
        .await
    }

    async fn record_use(&self, id: &KeyId, now: u64) -> Result<(), StoreFailure> {
        let id = id.clone();
        self.run("record the use of a key", move |connection| {
            keys::record_use(connection, &id, now)
        })
        .await
    }

    async fn add_session(&self, session: &Session, max: usize) -> Result<(), StoreFailure> {
        let session = session.clone();
        self.run("start a session", move |connection| {
            sessions::add(connection, &session, max)
        })
        .await
    }

    async fn session(&self, hash: &SecretHash) -> Result<Option<Session>, StoreFailure> {
        let hash = *hash;
        self.run("read a session", move |connection| {
            sessions::find(connection, &hash)
        })
        .await
    }

    async fn remove_session(&self, hash: &SecretHash) -> Result<bool, StoreFailure> {
        let hash = *hash;
        self.run("end a session", move |connection| {
            sessions::remove(connection, &hash)
        })
        .await
    }

    async fn records(&self) -> Result<AccountRecords, StoreFailure> {
        self.run("read the users and their keys", records::read)
            .await
    }

    async fn add_records(&self, records: &AccountRecords) -> Result<AddedAccounts, StoreFailure> {
        let records = records.clone();
        self.run("add users and their keys", move |connection| {
            records::add(connection, &records)
        })
        .await
    }
}

#[async_trait]
impl AuditStore for SqliteAccounts {
    async fn append(&self, entry: &AuditEntry, max: u64) -> Result<(), StoreFailure> {
        let entry = entry.clone();
        run_on(&self.audit, "append to the audit log", move |connection| {
            audit::append(connection, &entry, max)
        })
        .await
    }

    async fn read(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreFailure> {
        let filter = filter.clone();
        run_on(&self.audit, "read the audit log", move |connection| {
            audit::read(connection, &filter)
        })
        .await
    }

    async fn append_all(&self, entries: &[AuditEntry], max: u64) -> Result<(), StoreFailure> {
        let entries = entries.to_vec();
        self.run("append to the audit log", move |connection| {
            audit::append_all(connection, &entries, max)
        })
        .await
    }

    async fn read_after(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditEntry)>, StoreFailure> {
        let read = move |connection: &mut Connection| audit::read_after(connection, after, limit);
        run_on(&self.audit, "read the audit log", read).await
    }
}

/// Converts the text of a column.
fn parse_text<T, E>(
    column: usize,
    text: String,
    parse: impl FnOnce(String) -> Result<T, E>,
) -> rusqlite::Result<T>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    parse(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}
