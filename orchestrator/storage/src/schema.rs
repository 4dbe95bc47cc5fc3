//! Explicit migrations of schemas. Opening a store does the same, and does not report it.

use std::path::PathBuf;

use crate::postgres::{PostgresOpenError, PostgresOptions};
pub use crate::schema_migration::SchemaMigration;
use crate::sqlite::OpenError;
use crate::{PostgresStore, SealedDocuments, SqliteAccounts, SqliteStore};

/// A file of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaFile {
    /// Event logs: [`SqliteStore`].
    Events,
    /// Users and the audit log: [`SqliteAccounts`].
    Accounts,
    /// Encrypted documents: [`SealedDocuments`].
    Documents,
}

impl SchemaFile {
    /// Migrates an existing file.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn migrate(self, file: PathBuf) -> Result<SchemaMigration, OpenError> {
        let subject = file.clone();
        let migrate = move || match self {
            Self::Events => SqliteStore::migrate(file),
            Self::Accounts => SqliteAccounts::migrate(file),
            Self::Documents => SealedDocuments::migrate(file),
        };
        let migrated = tokio::task::spawn_blocking(migrate).await;
        migrated.unwrap_or_else(|source| {
            Err(OpenError::Aborted {
                file: subject,
                source,
            })
        })
    }
}

/// Migrates the tables of a PostgreSQL database, which has those of all stores.
///
/// # Errors
/// See [`PostgresOpenError`].
pub async fn migrate_database(
    address: &str,
    options: PostgresOptions,
) -> Result<SchemaMigration, PostgresOpenError> {
    PostgresStore::migrate(address, options).await
}
