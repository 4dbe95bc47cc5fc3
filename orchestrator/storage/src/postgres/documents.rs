//! Encrypted documents of all hosts.

use std::sync::Arc;

use async_trait::async_trait;

use super::database::Database;
use crate::sealed::{Row, Table, TableError};

const HAS_OTHER_KEY: &str = "SELECT EXISTS (SELECT FROM documents WHERE key_id <> $1)";

const READ: &str = "
    SELECT revision, key_id, CASE WHEN length(sealed) <= $2 THEN sealed ELSE '' END FROM documents WHERE name = $1";

const PAGE: &str = "
    SELECT revision, key_id, CASE WHEN length(sealed) <= $3 THEN sealed ELSE '' END, name FROM documents
    WHERE name > $1 ORDER BY name LIMIT $2";

const ADD: &str = "
    INSERT INTO documents (name, revision, key_id, sealed) VALUES ($1, $2, $3, $4)
    ON CONFLICT (name) DO NOTHING RETURNING revision";

const REPLACE: &str = "
    UPDATE documents SET revision = $2, key_id = $3, sealed = $4 WHERE name = $1 AND revision = $5 RETURNING revision";

const COPIED_REVISION: &str = "SELECT copied_revision FROM documents WHERE name = $1";

const MARK_COPIED: &str =
    "UPDATE documents SET copied_revision = $2 WHERE name = $1 AND revision = $2";

const REMOVE: &str = "DELETE FROM documents WHERE name = $1";

/// The table of documents.
pub(super) struct DocumentTable {
    reads: Arc<Database>,
    writes: Arc<Database>,
}

impl DocumentTable {
    pub(super) fn new(reads: Arc<Database>, writes: Arc<Database>) -> Self {
        Self { reads, writes }
    }
}

#[async_trait]
impl Table for DocumentTable {
    async fn has_other_key(&self, key_id: &[u8]) -> Result<bool, TableError> {
        let rows = self
            .reads
            .query(HAS_OTHER_KEY, &[&key_id])
            .await
            .map_err(failed)?;
        rows.first()
            .map_or(Ok(false), |row| row.try_get(0))
            .map_err(invalid)
    }

    async fn read(&self, name: &str, max_bytes: usize) -> Result<Option<Row>, TableError> {
        let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX);
        let rows = self
            .reads
            .query(READ, &[&name, &max_bytes])
            .await
            .map_err(failed)?;
        rows.first().map(to_row).transpose()
    }

    async fn page(
        &self,
        after: &str,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<(String, Row)>, TableError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let max_bytes = i32::try_from(max_bytes).unwrap_or(i32::MAX);
        let rows = self
            .reads
            .query(PAGE, &[&after, &limit, &max_bytes])
            .await
            .map_err(failed)?;
        rows.iter()
            .map(|row| Ok((row.try_get(3).map_err(invalid)?, to_row(row)?)))
            .collect()
    }

    async fn replace(&self, name: &str, revision: u64, row: Row) -> Result<bool, TableError> {
        let Row {
            revision: next,
            key_id,
            sealed,
        } = row;
        // One that cannot be stored is not the latest.
        let (Ok(found), Ok(next)) = (i64::try_from(revision), i64::try_from(next)) else {
            return Ok(false);
        };
        // Not repeated: the second of two writes would look like a conflict.
        let rows = match revision {
            0 => {
                self.writes
                    .query_once(ADD, &[&name, &next, &key_id, &sealed])
                    .await
            }
            _ => {
                self.writes
                    .query_once(REPLACE, &[&name, &next, &key_id, &sealed, &found])
                    .await
            }
        };
        Ok(!rows.map_err(failed)?.is_empty())
    }

    async fn remove(&self, name: &str) -> Result<(), TableError> {
        self.writes.query(REMOVE, &[&name]).await.map_err(failed)?;
        Ok(())
    }

    async fn copied_revision(&self, name: &str) -> Result<Option<u64>, TableError> {
        let rows = self
            .reads
            .query(COPIED_REVISION, &[&name])
            .await
            .map_err(failed)?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let revision: Option<i64> = row.try_get(0).map_err(invalid)?;
        revision.map(u64::try_from).transpose().map_err(invalid)
    }

    async fn mark_copied(&self, name: &str, revision: u64) -> Result<(), TableError> {
        let revision = i64::try_from(revision).map_err(invalid)?;
        self.writes
            .query(MARK_COPIED, &[&name, &revision])
            .await
            .map_err(failed)?;
        Ok(())
    }
}

fn to_row(row: &tokio_postgres::Row) -> Result<Row, TableError> {
    let revision: i64 = row.try_get(0).map_err(invalid)?;
    Ok(Row {
        revision: u64::try_from(revision).map_err(invalid)?,
        key_id: row.try_get(1).map_err(invalid)?,
        sealed: row.try_get(2).map_err(invalid)?,
    })
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TableError {
    TableError::Failed(error.into())
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TableError {
    TableError::InvalidValue(error.into())
}
