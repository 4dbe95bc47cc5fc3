//! The rows of documents, as a database stores them.

use async_trait::async_trait;

/// A row.
pub(crate) struct Row {
    pub(crate) revision: u64,
    pub(crate) key_id: Vec<u8>,
    /// The nonce, the encrypted content and the tag.
    pub(crate) sealed: Vec<u8>,
}

/// Why a statement failed.
pub(crate) enum TableError {
    /// A stored value cannot be what this program has written.
    InvalidValue(Box<dyn std::error::Error + Send + Sync>),
    /// The database failed. A retry may succeed.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// A table of documents.
#[async_trait]
pub(crate) trait Table: Send + Sync {
    /// Whether a row has another key than this one.
    async fn has_other_key(&self, key_id: &[u8]) -> Result<bool, TableError>;

    /// Returns the row of a document. Its sealed content is empty if it is longer than `max_bytes`.
    async fn read(&self, name: &str, max_bytes: usize) -> Result<Option<Row>, TableError>;

    /// Returns at most `limit` rows whose names follow `after`, sorted by the bytes of their names.
    /// Sealed contents as in [`read`](Self::read).
    async fn page(
        &self,
        after: &str,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<(String, Row)>, TableError>;

    /// Replaces the row of a document if it has this revision; adds it if that is 0 and there is
    /// none. Returns whether it did. Atomic, and durable when it returns.
    async fn replace(&self, name: &str, revision: u64, row: Row) -> Result<bool, TableError>;

    /// Removes the row of a document, if there is one.
    async fn remove(&self, name: &str) -> Result<(), TableError>;

    /// Returns the revision that [`mark_copied`](Self::mark_copied) has recorded. `None` if there
    /// is none.
    async fn copied_revision(&self, name: &str) -> Result<Option<u64>, TableError>;

    /// Records that a revision is in another store too. Does nothing if it is not the latest.
    async fn mark_copied(&self, name: &str, revision: u64) -> Result<(), TableError>;
}
