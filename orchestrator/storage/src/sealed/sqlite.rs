//! The table in a SQLite file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use super::table::{Row, Table, TableError};
use crate::schema_migration::SchemaMigration;
use crate::sqlite::Durability;
use crate::sqlite::migrations;
use crate::sqlite::open::{Location, OpenError, open_blocking};

const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/sealed/0001_documents.sql"),
    include_str!("../../migrations/sealed/0002_copied_revision.sql"),
];

pub(super) struct SqliteTable {
    /// A blocking mutex: it is locked only on threads that may block.
    connection: Arc<Mutex<Connection>>,
}

impl SqliteTable {
    /// Opens the file. Creates it (mode 0600), its folder (mode 0700) and its table if they do not
    /// exist.
    pub(super) async fn open(file: PathBuf) -> Result<Self, OpenError> {
        open_blocking(file, |file| {
            let (connection, _) = migrations::open(&location_of(file.clone()), MIGRATIONS)?;
            // A document that was replaced or removed leaves nothing in the file.
            let secure_delete = connection.pragma_update(None, "secure_delete", true);
            secure_delete.map_err(|source| OpenError::open(file, source))?;
            Ok(Self::with_connection(connection))
        })
        .await
    }

    /// Like [`open`](Self::open), but a file that cannot be written is only read.
    pub(super) async fn open_to_read(file: PathBuf) -> Result<Self, OpenError> {
        open_blocking(file, |file| {
            let (connection, _) = migrations::open_to_read(&location_of(file), MIGRATIONS)?;
            Ok(Self::with_connection(connection))
        })
        .await
    }

    pub(super) fn migrate(file: PathBuf) -> Result<SchemaMigration, OpenError> {
        migrations::open(&location_of(file), MIGRATIONS).map(|(_, migration)| migration)
    }

    fn with_connection(connection: Connection) -> Self {
        Self {
            connection: Arc::new(Mutex::new(connection)),
        }
    }

    async fn run<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, TableError> {
        let shared = Arc::clone(&self.connection);
        // A panic rolls its transaction back.
        let run = move || run(&mut shared.lock().unwrap_or_else(PoisonError::into_inner));
        match tokio::task::spawn_blocking(run).await {
            Ok(result) => result.map_err(classify),
            Err(error) => Err(TableError::Failed(error.into())),
        }
    }
}

fn location_of(file: PathBuf) -> Location {
    Location::new(file, Durability::PowerCut)
}

#[async_trait]
impl Table for SqliteTable {
    async fn has_other_key(&self, key_id: &[u8]) -> Result<bool, TableError> {
        const HAS_OTHER_KEY: &str = "SELECT EXISTS (SELECT 1 FROM documents WHERE key_id != ?1)";
        let key_id = key_id.to_vec();
        self.run(move |connection| connection.query_row(HAS_OTHER_KEY, [key_id], |row| row.get(0)))
            .await
    }

    async fn read(&self, name: &str, max_bytes: usize) -> Result<Option<Row>, TableError> {
        const READ: &str = "SELECT revision, key_id, iif(length(sealed) <= ?2, sealed, x'') FROM documents WHERE name = ?1";
        let name = name.to_owned();
        self.run(move |connection| {
            connection
                .query_row(READ, params![name, max_bytes], to_row)
                .optional()
        })
        .await
    }

    async fn page(
        &self,
        after: &str,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<(String, Row)>, TableError> {
        const PAGE: &str = "
            SELECT revision, key_id, iif(length(sealed) <= ?3, sealed, x''), name FROM documents
            WHERE name > ?1 ORDER BY name LIMIT ?2";
        let after = after.to_owned();
        self.run(move |connection| {
            let mut statement = connection.prepare_cached(PAGE)?;
            let rows = statement.query_map(params![after, limit, max_bytes], |row| {
                Ok((row.get(3)?, to_row(row)?))
            })?;
            rows.collect()
        })
        .await
    }

    async fn replace(&self, name: &str, revision: u64, row: Row) -> Result<bool, TableError> {
        let name = name.to_owned();
        self.run(move |connection| replace(connection, &name, revision, &row))
            .await
    }

    async fn remove(&self, name: &str) -> Result<(), TableError> {
        let name = name.to_owned();
        self.run(move |connection| {
            connection.execute("DELETE FROM documents WHERE name = ?1", [name])
        })
        .await
        .map(drop)
    }

    async fn copied_revision(&self, name: &str) -> Result<Option<u64>, TableError> {
        const COPIED: &str = "SELECT copied_revision FROM documents WHERE name = ?1";
        let name = name.to_owned();
        self.run(move |connection| {
            let found = connection.query_row(COPIED, [name], |row| row.get(0));
            Ok(found.optional()?.flatten())
        })
        .await
    }

    async fn mark_copied(&self, name: &str, revision: u64) -> Result<(), TableError> {
        const MARK: &str =
            "UPDATE documents SET copied_revision = ?2 WHERE name = ?1 AND revision = ?2";
        let name = name.to_owned();
        self.run(move |connection| connection.execute(MARK, params![name, revision]))
            .await
            .map(drop)
    }
}

fn to_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        revision: row.get(0)?,
        key_id: row.get(1)?,
        sealed: row.get(2)?,
    })
}

fn replace(
    connection: &mut Connection,
    name: &str,
    revision: u64,
    row: &Row,
) -> rusqlite::Result<bool> {
    const REVISION: &str = "SELECT revision FROM documents WHERE name = ?1";
    const REPLACE: &str = "
        INSERT INTO documents (name, revision, key_id, sealed) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (name) DO UPDATE SET revision = ?2, key_id = ?3, sealed = ?4";
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: Option<u64> = transaction
        .query_row(REVISION, [name], |row| row.get(0))
        .optional()?;
    if found.unwrap_or(0) != revision {
        return Ok(false);
    }
    transaction.execute(REPLACE, params![name, row.revision, row.key_id, row.sealed])?;
    transaction.commit()?;
    Ok(true)
}

/// A negative revision, or a value of another type, was not written by this program.
fn classify(error: rusqlite::Error) -> TableError {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    match error {
        FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..) => {
            TableError::InvalidValue(error.into())
        }
        error => TableError::Failed(error.into()),
    }
}
