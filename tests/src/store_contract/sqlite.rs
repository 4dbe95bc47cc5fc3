//! The SQLite store under test, in a file of its own.

use std::sync::Arc;

use async_trait::async_trait;
use engine::events::EventStore;
use rusqlite::Connection;
use storage::{BlobStore, Durability, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::{SqlBackend, StoreBackend};

/// Stores in one file.
pub struct SqliteBackend {
    folder: TempDir,
}

impl SqliteBackend {
    /// Creates a backend without a file.
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
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
        Arc::new(
            SqliteStore::open(self.file(), Durability::default())
                .await
                .unwrap(),
        )
    }
}

#[async_trait]
impl SqlBackend for SqliteBackend {
    async fn open_with_blobs(&self, blobs: BlobStore) -> Arc<dyn EventStore> {
        let options = SqliteOptions {
            blobs: Some(blobs),
            ..SqliteOptions::default()
        };
        Arc::new(SqliteStore::open(self.file(), options).await.unwrap())
    }

    fn execute(&self, sql: &str) {
        Connection::open(self.file())
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }

    fn invalid_utf8(&self) -> &'static str {
        "CAST(x'ff' AS TEXT)"
    }
}
