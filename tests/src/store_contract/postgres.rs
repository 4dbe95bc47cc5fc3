//! The PostgreSQL store under test, in a database of its own.

use std::sync::Arc;

use async_trait::async_trait;
use engine::events::EventStore;
use storage::postgres::PostgresOptions;
use storage::{BlobStore, PostgresStore};

use super::{SqlBackend, StoreBackend};
use crate::postgres::TestDatabase;

/// Stores in one database.
pub struct PostgresBackend(TestDatabase);

impl PostgresBackend {
    /// Creates an empty database. `None`, and the test is skipped, if PostgreSQL is not installed.
    pub fn create() -> Option<Self> {
        TestDatabase::create().map(Self)
    }
}

#[async_trait]
impl StoreBackend for PostgresBackend {
    async fn open(&self) -> Arc<dyn EventStore> {
        Arc::new(
            PostgresStore::open(&self.0.address(), PostgresOptions::default())
                .await
                .unwrap(),
        )
    }
}

#[async_trait]
impl SqlBackend for PostgresBackend {
    async fn open_with_blobs(&self, blobs: BlobStore) -> Arc<dyn EventStore> {
        let options = PostgresOptions {
            blobs: Some(blobs),
            ..PostgresOptions::default()
        };
        Arc::new(
            PostgresStore::open(&self.0.address(), options)
                .await
                .unwrap(),
        )
    }

    fn execute(&self, sql: &str) {
        self.0.execute(sql);
    }

    fn invalid_utf8(&self) -> &'static str {
        r"'\xff'::bytea"
    }
}
