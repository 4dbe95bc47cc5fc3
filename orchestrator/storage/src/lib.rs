//! Event stores: SQLite for one host, PostgreSQL for several, with large events in blobs. Sealed
//! documents: what must not be readable where it is stored. Accounts: users and their keys. SQLite
//! and PostgreSQL have all three.
//!
//! Both event stores implement the engine's [`EventStore`](engine::events::EventStore). Events are
//! redacted before they arrive here, and are not cached. Of their content, only the engine's
//! overview of a conversation is stored with them.

mod accounts;
mod audit_row;
mod blobs;
mod event_batch;
mod event_page;
mod failure;
pub mod postgres;
pub mod schema;
mod schema_migration;
pub mod sealed;
pub mod sqlite;
mod stored_event;
mod variant_name;

pub use accounts::SqliteAccounts;
pub use blobs::{BlobStore, BlobStoreError, S3_VARIABLES, S3Options};
pub use postgres::{PostgresAccounts, PostgresStore};
pub use sealed::{
    AddedDocument, EncryptedDocument, EncryptedDocuments, SealedDocument, SealedDocuments,
    SealedError, SealingKey, UpdatedDocument,
};
pub use sqlite::{Durability, OpenError, SqliteOptions, SqliteStore};
