//! Documents that are encrypted at rest: settings and secrets of users, in an SQLite file of their
//! own, or in the PostgreSQL database of several hosts.
//!
//! A document has a name and a revision. A writer names the revision that it has read, so that of
//! two concurrent writers one gets [`SealedError::Conflict`] and reads again. A write is one
//! transaction and is synced: after a crash the document is the old or the new one.
//!
//! An attacker who can write the file or the database can restore an earlier copy of a whole row,
//! or remove it. Anything else is detected.

mod cipher;
mod encrypted;
mod sqlite;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretSlice};

use crate::failure::cause;
use crate::schema_migration::SchemaMigration;
use crate::sqlite::OpenError;
use cipher::Identity;
pub use cipher::SealingKey;
pub use encrypted::{AddedDocument, EncryptedDocument, EncryptedDocuments, UpdatedDocument};
use sqlite::SqliteTable;
pub(crate) use table::{Row, Table, TableError};

/// Maximum size of a content, in bytes.
pub const MAX_CONTENT_BYTES: usize = 1 << 20;

/// Maximum length of a name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Bytes of a sealed document besides its content: nonce and tag, with room for other ciphers.
const MAX_OVERHEAD_BYTES: usize = 64;

/// The error of an operation on documents. Contains no content.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A document was encrypted with another key. Not retried: the operator has to restore the key,
    /// or remove the file.
    #[error("cannot decrypt {0}: it was encrypted with another key")]
    WrongKey(String),
    /// A document was changed outside of this program. Not retried.
    #[error("cannot decrypt the document {name}")]
    Damaged {
        /// Its name.
        name: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another writer was faster. Read again, and retry.
    #[error("cannot write the document {0}: another writer has changed it")]
    Conflict(String),
    /// The content or the name is too large.
    #[error("cannot write the document {name}: it has {length} bytes, and its name {name_length}")]
    TooLarge {
        /// Its name, cut to the maximum.
        name: String,
        /// Length of the content, in bytes. At most [`MAX_CONTENT_BYTES`] are allowed.
        length: usize,
        /// Length of the name, in bytes. At most [`MAX_NAME_BYTES`] are allowed.
        name_length: usize,
    },
    /// The database failed. A retry may succeed.
    #[error("cannot {operation} the document {name}")]
    Storage {
        /// What failed.
        operation: &'static str,
        /// The document.
        name: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A decrypted document.
#[derive(Debug)]
pub struct SealedDocument {
    /// Increases with each write, from 1.
    pub revision: u64,
    /// The content.
    pub content: SecretSlice<u8>,
}

/// Encrypted documents. Cheap to clone. Several processes may use the same file or database.
#[derive(Clone)]
pub struct SealedDocuments(Arc<Inner>);

struct Inner {
    /// The file or database, for people.
    location: String,
    key: SealingKey,
    table: Box<dyn Table>,
}

impl std::fmt::Debug for SealedDocuments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedDocuments")
            .field("location", &self.0.location)
            .finish_non_exhaustive()
    }
}

impl SealedDocuments {
    /// Opens a SQLite file. Creates it (mode 0600), its folder (mode 0700) and its table if they do
    /// not exist.
    ///
    /// # Errors
    /// [`SealedError::Open`], and [`SealedError::WrongKey`] if it contains a document of another
    /// key.
    pub async fn open(file: impl Into<PathBuf>, key: SealingKey) -> Result<Self, SealedError> {
        let file = file.into();
        let location = file.display().to_string();
        Self::with_table(location, key, Box::new(SqliteTable::open(file).await?)).await
    }

    /// Migrates an existing file.
    pub(crate) fn migrate(file: PathBuf) -> Result<SchemaMigration, OpenError> {
        SqliteTable::migrate(file)
    }

    /// Checks that all documents of a table have this key.
    pub(crate) async fn with_table(
        location: String,
        key: SealingKey,
        table: Box<dyn Table>,
    ) -> Result<Self, SealedError> {
        match table.has_other_key(key.id()).await {
            Ok(false) => Ok(Self(Arc::new(Inner {
                location,
                key,
                table,
            }))),
            Ok(true) => Err(SealedError::WrongKey(location)),
            Err(error) => Err(failed("read the keys of", &location, error)),
        }
    }

    /// Returns a document. `None` if there is none of this name.
    ///
    /// # Errors
    /// [`SealedError::Damaged`], [`SealedError::WrongKey`] or [`SealedError::Storage`].
    pub async fn read(&self, name: &str) -> Result<Option<SealedDocument>, SealedError> {
        let Inner {
            location,
            key,
            table,
        } = &*self.0;
        let row = table
            .read(name, MAX_CONTENT_BYTES + MAX_OVERHEAD_BYTES)
            .await;
        let Some(row) = row.map_err(|error| failed("read", name, error))? else {
            return Ok(None);
        };
        if row.key_id != key.id() {
            return Err(SealedError::WrongKey(location.clone()));
        }
        let Row {
            revision, sealed, ..
        } = row;
        let content = key.open(Identity { name, revision }, sealed);
        let content = content
            .map_err(|error| failed("decrypt", name, TableError::InvalidValue(error.into())))?;
        Ok(Some(SealedDocument { revision, content }))
    }

    /// Writes a document whose latest revision is `revision`; 0 if there is none. If the future is
    /// dropped, it may still be written.
    ///
    /// # Errors
    /// [`SealedError::Conflict`], [`SealedError::TooLarge`] or [`SealedError::Storage`].
    pub async fn write(
        &self,
        name: &str,
        revision: u64,
        content: SecretSlice<u8>,
    ) -> Result<(), SealedError> {
        let Inner { key, table, .. } = &*self.0;
        let content = content.expose_secret();
        check_size(name, content)?;
        let next = revision.saturating_add(1);
        let sealed = key.seal(
            Identity {
                name,
                revision: next,
            },
            content,
        );
        let sealed =
            sealed.map_err(|error| failed("encrypt", name, TableError::Failed(error.into())))?;
        let row = Row {
            revision: next,
            key_id: key.id().to_vec(),
            sealed,
        };
        match table.replace(name, revision, row).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SealedError::Conflict(name.to_owned())),
            Err(error) => Err(failed("write", name, error)),
        }
    }

    /// Removes a document. Succeeds if there is none.
    ///
    /// # Errors
    /// [`SealedError::Storage`].
    pub async fn remove(&self, name: &str) -> Result<(), SealedError> {
        self.0
            .table
            .remove(name)
            .await
            .map_err(|error| failed("remove", name, error))
    }
}

fn check_size(name: &str, content: &[u8]) -> Result<(), SealedError> {
    if content.len() <= MAX_CONTENT_BYTES && name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let end = name.floor_char_boundary(MAX_NAME_BYTES);
    let (length, name_length) = (content.len(), name.len());
    Err(SealedError::TooLarge {
        name: name[..end].to_owned(),
        length,
        name_length,
    })
}

fn failed(operation: &'static str, name: &str, error: TableError) -> SealedError {
    let name = name.to_owned();
    match error {
        TableError::InvalidValue(source) => SealedError::Damaged { name, source },
        TableError::Failed(source) => SealedError::Storage {
            operation,
            name,
            source: cause(source),
        },
    }
}
