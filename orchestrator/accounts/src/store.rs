//! The trait of the store of users, keys and sessions.

use std::error::Error;

use async_trait::async_trait;
use protocol::UserId;

use crate::key::{Key, KeyId};
use crate::records::{AccountRecords, AddedAccounts};
use crate::secret_hash::SecretHash;

/// A user of a server. Times are in seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: UserId,
    /// When the user was added.
    pub created_at: u64,
    /// When the user was removed. The name stays reserved, because conversations have it as their
    /// owner.
    pub removed_at: Option<u64>,
}

/// The session of a browser that has signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Hash of its token.
    pub hash: SecretHash,
    /// The key that it was started with: the id of a user's key, or a fingerprint of the
    /// operator's.
    pub key: String,
    /// When it was started, in seconds since the Unix epoch.
    pub created_at: u64,
    /// When it ends, in seconds since the Unix epoch.
    pub expires_at: u64,
}

/// The store failed. A retry may succeed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}")]
pub struct StoreFailure {
    /// What failed.
    pub operation: &'static str,
    /// The cause.
    pub source: Box<dyn Error + Send + Sync>,
}

/// Stores users, the hashes of their keys, and sessions. Each change is atomic and durable when it
/// returns. Servers and command lines that share a store see each other's changes with the next
/// call.
#[async_trait]
pub trait AccountStore: Send + Sync {
    /// Adds a user, or restores a removed one. Does nothing if the user exists.
    async fn put_user(&self, name: &UserId, now: u64) -> Result<(), StoreFailure>;

    /// Marks a user as removed, and removes the user's keys with their sessions. Returns whether
    /// the user existed.
    async fn remove_user(&self, name: &UserId, now: u64) -> Result<bool, StoreFailure>;

    /// Returns a user, who may be removed. `None` if there never was one of this name.
    async fn user(&self, name: &UserId) -> Result<Option<User>, StoreFailure>;

    /// Returns all users by name, also removed ones.
    async fn users(&self) -> Result<Vec<User>, StoreFailure>;

    /// Adds a key. Returns whether it did: not if the user does not exist, is removed, or has `max`
    /// keys.
    async fn add_key(&self, key: &Key, hash: &SecretHash, max: usize)
    -> Result<bool, StoreFailure>;

    /// Removes a key with its sessions. Returns whether it existed.
    async fn remove_key(&self, id: &KeyId) -> Result<bool, StoreFailure>;

    /// Returns the keys of a user, or of all users; by user, the oldest first. Also expired ones.
    async fn keys(&self, user: Option<&UserId>) -> Result<Vec<Key>, StoreFailure>;

    /// Returns the key with an id, which may be expired.
    async fn key(&self, id: &KeyId) -> Result<Option<Key>, StoreFailure>;

    /// Returns the key with a hash, which may be expired.
    async fn find_key(&self, hash: &SecretHash) -> Result<Option<Key>, StoreFailure>;

    /// Records that a key was used. Does nothing if there is no such key.
    async fn record_use(&self, id: &KeyId, now: u64) -> Result<(), StoreFailure>;

    /// Stores a session. Removes sessions that have ended, and the oldest of the same key beyond
    /// `max`.
    async fn add_session(&self, session: &Session, max: usize) -> Result<(), StoreFailure>;

    /// Returns the session with a hash, which may have ended.
    async fn session(&self, hash: &SecretHash) -> Result<Option<Session>, StoreFailure>;

    /// Removes a session. Returns whether it existed.
    async fn remove_session(&self, hash: &SecretHash) -> Result<bool, StoreFailure>;

    /// Returns all users and keys, as they are at one time.
    async fn records(&self) -> Result<AccountRecords, StoreFailure>;

    /// Adds the users whose names are not taken, with their keys. Existing users and their keys
    /// stay as they are, so that no removed user and no revoked key becomes valid again. Atomic.
    async fn add_records(&self, records: &AccountRecords) -> Result<AddedAccounts, StoreFailure>;
}
