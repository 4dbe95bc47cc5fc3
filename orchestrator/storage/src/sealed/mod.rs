//! Documents that are encrypted at rest: settings and secrets of users, in an SQLite file of their own.
//!
//! A document has a name and a revision. A writer names the revision that it has read, so that of two concurrent writers one gets
//! [`SealedError::Conflict`] and reads again. A write is one transaction and is synced: after a crash the document is the old
//! or the new one.
//!
//! An attacker who can write the file can restore an earlier copy of a whole row, or remove it. Anything else is detected.

mod cipher;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use secrecy::SecretSlice;

use crate::sqlite::Durability;
use crate::sqlite::migrations;
use crate::sqlite::open::{Location, OpenError};
use cipher::Identity;
pub use cipher::SealingKey;

/// Maximum size of a content, in bytes.
pub const MAX_CONTENT_BYTES: usize = 1 << 20;

/// Maximum length of a name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Bytes of a sealed document besides its content: nonce and tag, with room for other ciphers.
const MAX_OVERHEAD_BYTES: usize = 64;

const MIGRATIONS: &[&str] = &[include_str!("../../migrations/sealed/0001_documents.sql")];

/// The error of an operation on documents. Contains no content.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// The file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A document was encrypted with another key. Not retried: the operator has to restore the key, or remove the file.
    #[error("cannot decrypt {}: it was encrypted with another key", .0.display())]
    WrongKey(PathBuf),
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

/// Encrypted documents in a SQLite file. Cheap to clone. Several processes may use the same file.
#[derive(Debug, Clone)]
pub struct SealedDocuments(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: PathBuf,
    key: SealingKey,
    /// A blocking mutex: it is locked only on threads that may block.
    connection: Mutex<Connection>,
}

impl SealedDocuments {
    /// Opens the file. Creates it (mode 0600), its folder (mode 0700) and its table if they do not exist.
    ///
    /// # Errors
    /// [`SealedError::Open`], and [`SealedError::WrongKey`] if it contains a document of another key.
    pub async fn open(file: impl Into<PathBuf>, key: SealingKey) -> Result<Self, SealedError> {
        let file = file.into();
        let subject = file.clone();
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(file, key)).await;
        opened.unwrap_or_else(|source| Err(OpenError::Aborted { file: subject, source }.into()))
    }

    fn open_blocking(file: PathBuf, key: SealingKey) -> Result<Self, SealedError> {
        let location = Location::new(file.clone(), Durability::PowerCut);
        location.create()?;
        let mut connection = location.connect()?;
        location.check_writable(&connection)?;
        migrations::apply(&mut connection, &location, MIGRATIONS)?;
        let failed = |source| OpenError::Open { file: file.clone(), source };
        // A document that was replaced or removed leaves nothing in the file.
        connection.pragma_update(None, "secure_delete", true).map_err(failed)?;
        let has_other_key = "SELECT EXISTS (SELECT 1 FROM documents WHERE key_id != ?1)";
        if connection.query_row(has_other_key, [key.id()], |row| row.get(0)).map_err(failed)? {
            return Err(SealedError::WrongKey(file));
        }
        Ok(Self(Arc::new(Inner { file, key, connection: Mutex::new(connection) })))
    }

    /// Returns a document. `None` if there is none of this name.
    ///
    /// # Errors
    /// [`SealedError::Damaged`], [`SealedError::WrongKey`] or [`SealedError::Storage`].
    pub async fn read(&self, name: &str) -> Result<Option<SealedDocument>, SealedError> {
        self.run("read", name, |inner, name| inner.read(name)).await
    }

    /// Writes a document whose latest revision is `revision`; 0 if there is none. If the future is dropped, it may still be written.
    ///
    /// # Errors
    /// [`SealedError::Conflict`], [`SealedError::TooLarge`] or [`SealedError::Storage`].
    pub async fn write(
        &self,
        name: &str,
        revision: u64,
        content: SecretSlice<u8>,
    ) -> Result<(), SealedError> {
        self.run("write", name, move |inner, name| inner.write(name, revision, &content)).await
    }

    /// Removes a document. Succeeds if there is none.
    ///
    /// # Errors
    /// [`SealedError::Storage`].
    pub async fn remove(&self, name: &str) -> Result<(), SealedError> {
        self.run("remove", name, |inner, name| inner.remove(name)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        name: &str,
        run: impl FnOnce(&Inner, &str) -> Result<T, SealedError> + Send + 'static,
    ) -> Result<T, SealedError> {
        let (inner, document) = (Arc::clone(&self.0), name.to_owned());
        let done = tokio::task::spawn_blocking(move || run(&inner, &document)).await;
        done.unwrap_or_else(|source| {
            Err(SealedError::Storage { operation, name: name.to_owned(), source: source.into() })
        })
    }
}

/// A row as it is stored.
struct Row {
    revision: u64,
    key_id: Vec<u8>,
    /// Empty if it is longer than a document can be.
    sealed: Vec<u8>,
}

impl Inner {
    fn read(&self, name: &str) -> Result<Option<SealedDocument>, SealedError> {
        const SELECT: &str =
            "SELECT revision, key_id, iif(length(sealed) <= ?2, sealed, x'') FROM documents WHERE name = ?1";
        let to_row = |row: &rusqlite::Row<'_>| {
            Ok(Row { revision: row.get(0)?, key_id: row.get(1)?, sealed: row.get(2)? })
        };
        let max = MAX_CONTENT_BYTES + MAX_OVERHEAD_BYTES;
        let row = self.connection().query_row(SELECT, params![name, max], to_row).optional();
        // A negative revision, or a value of another type.
        let damaged = |source: Box<dyn std::error::Error + Send + Sync>| SealedError::Damaged {
            name: name.to_owned(),
            source,
        };
        let row = match row {
            Ok(None) => return Ok(None),
            Ok(Some(row)) => row,
            Err(error) if is_invalid_value(&error) => return Err(damaged(error.into())),
            Err(error) => return Err(storage("read", name, error)),
        };
        if row.key_id != self.key.id() {
            return Err(SealedError::WrongKey(self.file.clone()));
        }
        let Row { revision, sealed, .. } = row;
        let content = self.key.open(Identity { name, revision }, sealed);
        let content = content.map_err(|error| damaged(error.into()))?;
        Ok(Some(SealedDocument { revision, content }))
    }

    fn write(&self, name: &str, revision: u64, content: &SecretSlice<u8>) -> Result<(), SealedError> {
        let content = secrecy::ExposeSecret::expose_secret(content);
        check_size(name, content)?;
        let next = revision.saturating_add(1);
        let sealed = self.key.seal(Identity { name, revision: next }, content);
        let sealed = sealed.map_err(|error| storage("encrypt", name, error))?;
        let mut connection = self.connection();
        match replace(&mut connection, name, revision, params![name, next, self.key.id(), sealed]) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SealedError::Conflict(name.to_owned())),
            Err(error) => Err(storage("write", name, error)),
        }
    }

    fn remove(&self, name: &str) -> Result<(), SealedError> {
        let removed = self.connection().execute("DELETE FROM documents WHERE name = ?1", [name]);
        removed.map(drop).map_err(|error| storage("remove", name, error))
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        // A panic rolls its transaction back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces a row if it has this revision. Returns whether it had.
fn replace(
    connection: &mut Connection,
    name: &str,
    revision: u64,
    values: &[&dyn rusqlite::ToSql],
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = "SELECT revision FROM documents WHERE name = ?1";
    let found: Option<u64> = transaction.query_row(found, [name], |row| row.get(0)).optional()?;
    if found.unwrap_or(0) != revision {
        return Ok(false);
    }
    let upsert = "INSERT OR REPLACE INTO documents (name, revision, key_id, sealed) VALUES (?1, ?2, ?3, ?4)";
    transaction.execute(upsert, values)?;
    transaction.commit()?;
    Ok(true)
}

fn check_size(name: &str, content: &[u8]) -> Result<(), SealedError> {
    if content.len() <= MAX_CONTENT_BYTES && name.len() <= MAX_NAME_BYTES {
        return Ok(());
    }
    let end = name.floor_char_boundary(MAX_NAME_BYTES);
    let (length, name_length) = (content.len(), name.len());
    Err(SealedError::TooLarge { name: name[..end].to_owned(), length, name_length })
}

/// Whether a stored value cannot be what this program has written.
fn is_invalid_value(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    matches!(error, FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..))
}

fn storage(
    operation: &'static str,
    name: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> SealedError {
    SealedError::Storage { operation, name: name.to_owned(), source: source.into() }
}
