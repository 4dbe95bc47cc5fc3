//! Users, keys, sessions and the audit log of all hosts, next to their event logs.
//!
//! Each change is one statement, so that a host that is suspended in the middle holds no lock. A
//! change whose connection breaks fails, although it may have been made, unless repeating it is
//! harmless.

mod audit;
mod keys;
mod records;
mod sessions;
mod users;

use std::sync::Arc;

use accounts::{
    AccountRecords, AccountStore, AddedAccounts, AuditEntry, AuditFilter, AuditStore, Key, KeyId,
    SecretHash, Session, StoreFailure, User,
};
use async_trait::async_trait;
use protocol::UserId;

use super::database::{Database, DatabaseError};
use super::read::BoxError;
use crate::failure::cause;

/// Users, keys, sessions and the audit log in a PostgreSQL database. Cheap to clone.
#[derive(Clone)]
pub struct PostgresAccounts {
    reads: Arc<Database>,
    writes: Arc<Database>,
}

impl PostgresAccounts {
    pub(super) fn new(reads: Arc<Database>, writes: Arc<Database>) -> Self {
        Self { reads, writes }
    }
}

#[async_trait]
impl AccountStore for PostgresAccounts {
    async fn put_user(&self, name: &UserId, now: u64) -> Result<(), StoreFailure> {
        users::put(&self.writes, name, now)
            .await
            .map_err(failed("add a user"))
    }

    async fn remove_user(&self, name: &UserId, now: u64) -> Result<bool, StoreFailure> {
        users::remove(&self.writes, name, now)
            .await
            .map_err(failed("remove a user"))
    }

    async fn user(&self, name: &UserId) -> Result<Option<User>, StoreFailure> {
        users::find(&self.reads, name)
            .await
            .map_err(failed("read a user"))
    }

    async fn users(&self) -> Result<Vec<User>, StoreFailure> {
        users::all(&self.reads)
            .await
            .map_err(failed("read the users"))
    }

    async fn add_key(
        &self,
        key: &Key,
        hash: &SecretHash,
        max: usize,
    ) -> Result<bool, StoreFailure> {
        keys::add(&self.writes, key, hash, max)
            .await
            .map_err(failed("add a key"))
    }

    async fn remove_key(&self, id: &KeyId) -> Result<bool, StoreFailure> {
        keys::remove(&self.writes, id)
            .await
            .map_err(failed("revoke a key"))
    }

    async fn keys(&self, user: Option<&UserId>) -> Result<Vec<Key>, StoreFailure> {
        keys::all(&self.reads, user)
            .await
            .map_err(failed("read the keys"))
    }

    async fn key(&self, id: &KeyId) -> Result<Option<Key>, StoreFailure> {
        keys::with_id(&self.reads, id)
            .await
            .map_err(failed("read a key"))
    }

    async fn find_key(&self, hash: &SecretHash) -> Result<Option<Key>, StoreFailure> {
        keys::with_hash(&self.reads, hash)
            .await
            .map_err(failed("read a key"))
    }

    async fn record_use(&self, id: &KeyId, now: u64) -> Result<(), StoreFailure> {
        keys::record_use(&self.writes, id, now)
            .await
            .map_err(failed("record the use of a key"))
    }

    async fn add_session(&self, session: &Session, max: usize) -> Result<(), StoreFailure> {
        sessions::add(&self.writes, session, max)
            .await
            .map_err(failed("start a session"))
    }

    async fn session(&self, hash: &SecretHash) -> Result<Option<Session>, StoreFailure> {
        sessions::find(&self.reads, hash)
            .await
            .map_err(failed("read a session"))
    }

    async fn remove_session(&self, hash: &SecretHash) -> Result<bool, StoreFailure> {
        sessions::remove(&self.writes, hash)
            .await
            .map_err(failed("end a session"))
    }

    async fn records(&self) -> Result<AccountRecords, StoreFailure> {
        records::read(&self.reads)
            .await
            .map_err(failed("read the users and their keys"))
    }

    async fn add_records(&self, records: &AccountRecords) -> Result<AddedAccounts, StoreFailure> {
        records::add(&self.writes, records)
            .await
            .map_err(failed("add users and their keys"))
    }
}

#[async_trait]
impl AuditStore for PostgresAccounts {
    async fn append(&self, entry: &AuditEntry, max: u64) -> Result<(), StoreFailure> {
        audit::append(&self.writes, entry, max)
            .await
            .map_err(failed("append to the audit log"))
    }

    async fn read(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreFailure> {
        audit::read(&self.reads, filter)
            .await
            .map_err(failed("read the audit log"))
    }

    async fn append_all(&self, entries: &[AuditEntry], max: u64) -> Result<(), StoreFailure> {
        audit::append_all(&self.writes, entries, max)
            .await
            .map_err(failed("append to the audit log"))
    }

    async fn read_after(
        &self,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(u64, AuditEntry)>, StoreFailure> {
        audit::read_after(&self.reads, after, limit)
            .await
            .map_err(failed("read the audit log"))
    }
}

fn failed(operation: &'static str) -> impl FnOnce(BoxError) -> StoreFailure {
    move |source| StoreFailure {
        operation,
        source: cause(source),
    }
}

/// Returns a number as PostgreSQL stores it.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the count in the only row of a result.
fn count(rows: &[tokio_postgres::Row]) -> Result<i64, DatabaseError> {
    Ok(rows
        .first()
        .map(|row| row.try_get(0))
        .transpose()?
        .unwrap_or_default())
}
