//! Documents as they are stored, for copies: reading them needs no key.

use std::path::PathBuf;

use super::cipher::{Identity, SealingKey};
use super::sqlite::SqliteTable;
use super::table::{Row, Table, TableError};
use super::{
    MAX_CONTENT_BYTES, MAX_NAME_BYTES, MAX_OVERHEAD_BYTES, SealedDocuments, SealedError, failed,
};

/// Number of documents per read.
const PAGE_SIZE: usize = 16;

/// An encrypted document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptedDocument {
    /// Its name.
    pub name: String,
    /// Increases with each write, from 1.
    pub revision: u64,
    /// The id of the key.
    pub key_id: Vec<u8>,
    /// The nonce, the encrypted content and the tag.
    pub sealed: Vec<u8>,
}

/// What [`SealedDocuments::add`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedDocument {
    /// No document had the name. The document was added.
    Added,
    /// The same document existed.
    Exists,
    /// A document with another content had the name, and was kept.
    Differs,
}

/// What [`SealedDocuments::update`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdatedDocument {
    /// No document had the name. The document was added.
    Added,
    /// The document had not changed since it was last the same in both stores, and was replaced.
    Replaced,
    /// The same document existed, or one that was written after the document had been copied.
    Exists,
    /// Both stores have changed the document. It was kept.
    Differs,
}

/// Encrypted documents, without their key. Reads only.
pub struct EncryptedDocuments {
    table: Box<dyn Table>,
}

impl EncryptedDocuments {
    /// Opens a SQLite file. Creates and migrates it like [`SealedDocuments::open`], unless it
    /// cannot be written.
    ///
    /// # Errors
    /// [`SealedError::Open`].
    pub async fn open(file: impl Into<PathBuf>) -> Result<Self, SealedError> {
        Ok(Self::with_table(Box::new(
            SqliteTable::open_to_read(file.into()).await?,
        )))
    }

    pub(crate) fn with_table(table: Box<dyn Table>) -> Self {
        Self { table }
    }

    /// Returns some documents whose names follow `after`, sorted by name. Empty if there are no
    /// further ones.
    ///
    /// # Errors
    /// [`SealedError::Damaged`] or [`SealedError::Storage`].
    pub async fn page(&self, after: &str) -> Result<Vec<EncryptedDocument>, SealedError> {
        let max_bytes = MAX_CONTENT_BYTES + MAX_OVERHEAD_BYTES;
        let rows = self.table.page(after, PAGE_SIZE, max_bytes).await;
        let rows = rows.map_err(|error| failed("read documents after", after, error))?;
        Ok(rows.into_iter().map(EncryptedDocument::from).collect())
    }

    /// Returns a document. `None` if there is none of this name.
    ///
    /// # Errors
    /// [`SealedError::Damaged`] or [`SealedError::Storage`].
    pub async fn read(&self, name: &str) -> Result<Option<EncryptedDocument>, SealedError> {
        let row = self
            .table
            .read(name, MAX_CONTENT_BYTES + MAX_OVERHEAD_BYTES)
            .await;
        let row = row.map_err(|error| failed("read", name, error))?;
        Ok(row.map(|row| EncryptedDocument::from((name.to_owned(), row))))
    }

    /// Returns the revision of a document that was last the same in another store, as far as a copy
    /// has recorded it here. `None` if there is none.
    ///
    /// # Errors
    /// [`SealedError::Damaged`] or [`SealedError::Storage`].
    pub async fn copied_revision(&self, name: &str) -> Result<Option<u64>, SealedError> {
        let found = self.table.copied_revision(name).await;
        found.map_err(|error| failed("read", name, error))
    }
}

impl From<(String, Row)> for EncryptedDocument {
    fn from(
        (
            name,
            Row {
                revision,
                key_id,
                sealed,
            },
        ): (String, Row),
    ) -> Self {
        Self {
            name,
            revision,
            key_id,
            sealed,
        }
    }
}

impl SealingKey {
    /// Checks that a document was encrypted with this key, and was not changed since.
    ///
    /// # Errors
    /// [`SealedError::WrongKey`], [`SealedError::Damaged`], or [`SealedError::TooLarge`].
    pub fn check(&self, document: &EncryptedDocument) -> Result<(), SealedError> {
        let EncryptedDocument {
            name,
            revision,
            key_id,
            sealed,
        } = document;
        if key_id != self.id() {
            return Err(SealedError::WrongKey(format!("the document {name}")));
        }
        if name.len() > MAX_NAME_BYTES || sealed.len() > MAX_CONTENT_BYTES + MAX_OVERHEAD_BYTES {
            let (length, name_length) = (sealed.len(), name.len());
            let end = name.floor_char_boundary(MAX_NAME_BYTES);
            return Err(SealedError::TooLarge {
                name: name[..end].to_owned(),
                length,
                name_length,
            });
        }
        let opened = self.open(
            Identity {
                name,
                revision: *revision,
            },
            sealed.clone(),
        );
        opened
            .map(drop)
            .map_err(|error| failed("decrypt", name, TableError::InvalidValue(error.into())))
    }
}

impl SealedDocuments {
    /// Adds a document of another store with its revision. An existing one of this name is kept.
    ///
    /// # Errors
    /// See [`SealingKey::check`]; [`SealedError::Storage`].
    pub async fn add(&self, document: &EncryptedDocument) -> Result<AddedDocument, SealedError> {
        let (key, table) = (&self.0.key, &self.0.table);
        key.check(document)?;
        let EncryptedDocument {
            name,
            revision,
            key_id,
            sealed,
        } = document.clone();
        let added = table
            .replace(
                &name,
                0,
                Row {
                    revision,
                    key_id,
                    sealed,
                },
            )
            .await;
        if added.map_err(|error| failed("write", &name, error))? {
            return Ok(AddedDocument::Added);
        }
        let row = table
            .read(&name, MAX_CONTENT_BYTES + MAX_OVERHEAD_BYTES)
            .await;
        let existing = row.map_err(|error| failed("read", &name, error))?;
        let is_same = existing
            .map(|row| EncryptedDocument::from((name, row)))
            .as_ref()
            == Some(document);
        Ok(if is_same {
            AddedDocument::Exists
        } else {
            AddedDocument::Differs
        })
    }

    /// Like [`add`](Self::add), but replaces the existing document if it has not changed since both
    /// stores had the same one. `copied` is the revision that the other store has recorded as such:
    /// it is the target of an earlier copy in the other direction.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub async fn update(
        &self,
        document: &EncryptedDocument,
        copied: Option<u64>,
    ) -> Result<UpdatedDocument, SealedError> {
        let table = &self.0.table;
        let EncryptedDocument {
            name,
            revision,
            key_id,
            sealed,
        } = document;
        let updated = match self.add(document).await? {
            AddedDocument::Added => UpdatedDocument::Added,
            AddedDocument::Exists => UpdatedDocument::Exists,
            AddedDocument::Differs => {
                let read = async {
                    let existing = table.read(name, 0).await?.map_or(0, |row| row.revision);
                    Ok((existing, table.copied_revision(name).await?))
                };
                let (existing, own) = read.await.map_err(|error| failed("read", name, error))?;
                let is_common = |revision| own == Some(revision) || copied == Some(revision);
                if existing > *revision && is_common(*revision) {
                    return Ok(UpdatedDocument::Exists);
                }
                if existing >= *revision || !is_common(existing) {
                    return Ok(UpdatedDocument::Differs);
                }
                let row = Row {
                    revision: *revision,
                    key_id: key_id.clone(),
                    sealed: sealed.clone(),
                };
                let replaced = table.replace(name, existing, row).await;
                if !replaced.map_err(|error| failed("write", name, error))? {
                    return Err(SealedError::Conflict(name.clone()));
                }
                UpdatedDocument::Replaced
            }
        };
        let marked = table.mark_copied(name, *revision).await;
        marked.map_err(|error| failed("write", name, error))?;
        Ok(updated)
    }
}
