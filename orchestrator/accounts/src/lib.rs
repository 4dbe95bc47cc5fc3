//! Users of a server, the API keys that they authenticate with, and the sessions of their browsers.
//!
//! [`Users`] administers users and keys. [`Authenticator`] finds the [`Caller`] of a request by its
//! key or session. Both read the store each time, so that another process can add and revoke keys
//! while a server runs.
//!
//! The operator is no user: the operator's key is in the configuration of the server, guards
//! everything, and works without any user. A key is shown once. Its hash is stored, and finds it
//! again: keys are random and 256 bits long, so that a fast hash suffices.
//!
//! An [`AuditStore`] keeps who changed what.
//!
//! Knows no adapter: the stores are an [`AccountStore`] and an [`AuditStore`].

mod account_changes;
mod audit;
mod audit_merge;
mod authenticator;
mod caller;
mod error;
mod key;
mod records;
mod secret_hash;
mod store;
mod time;
mod users;

pub use account_changes::{
    AccountChanges, AccountDifference, AccountDifferenceKind, ChangedAccounts,
};
pub use audit::{AuditActor, AuditEntry, AuditFilter, AuditStore, MAX_AUDIT_ENTRIES};
pub use audit_merge::AuditMerge;
pub use authenticator::{Authenticator, MAX_SESSIONS, SESSION_LIFETIME};
pub use caller::{Caller, Credential, InvalidCredential};
pub use error::AccountError;
pub use key::{InvalidKeyId, Key, KeyId, KeyScope, NewKey};
pub use records::{AccountRecords, AddedAccounts, InvalidRecords, KeyRecord};
pub use secret_hash::SecretHash;
pub use store::{AccountStore, Session, StoreFailure, User};
pub use time::{unix_now, unix_now_ms};
pub use users::{MAX_KEYS, Users};
