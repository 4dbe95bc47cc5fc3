//! The SQLite store under test, in a file of its own.

use std::sync::Arc;

use async_trait::async_trait;
use engine::events::EventStore;
use rusqlite::Connection;
use storage::{Durability, SqliteStore};
use tempfile::TempDir;

use super::{SqlBackend, StoreBackend};

/// Stores in one file.
pub struct SqliteBackend {
    folder: TempDir,
}

impl SqliteBackend {
    /// Creates a backend without a file.
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("events.db")
    }
}

impl Default for SqliteBackend {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl StoreBackend for SqliteBackend {
    async fn open(&self) -> Arc<dyn EventStore> {
        Arc::new(SqliteStore::open(self.file(), Durability::default()).await.unwrap())
    }
}

impl SqlBackend for SqliteBackend {
    fn execute(&self, sql: &str) {
        Connection::open(self.file()).unwrap().execute_batch(sql).unwrap();
    }

    fn invalid_utf8(&self) -> &'static str {
        "CAST(x'ff' AS TEXT)"
    }
}
