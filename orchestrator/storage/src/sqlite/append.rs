//! Append of events to a log, within the writer's transaction.

use engine::events::StoreError;
use rusqlite::{Connection, params};

use super::read::find_log;

use crate::event_batch::EventBatch;

/// Error of a change.
pub(super) enum ChangeError {
    /// The change is invalid for the stored log.
    Rejected(StoreError),
    /// SQLite failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for ChangeError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Appends the events. Reads the end of the log in the same transaction, because another process may have appended.
pub(super) fn write(connection: &Connection, batch: &EventBatch) -> Result<(), ChangeError> {
    let (number, end) = match find_log(connection, &batch.conversation)? {
        Some(found) => found,
        None => (create_log(connection, batch)?, 0),
    };
    if batch.first.0 != end {
        return Err(ChangeError::Rejected(batch.out_of_order()));
    }
    let mut insert =
        connection.prepare_cached("INSERT INTO events (conversation, id, json) VALUES (?1, ?2, ?3)")?;
    for (id, json) in (end..).zip(&batch.rows) {
        insert.execute(params![number, id, json])?;
    }
    connection
        .prepare_cached("UPDATE conversations SET events = ?2, last_updated_at = ?3 WHERE number = ?1")?
        .execute(params![number, end + batch.rows.len() as u64, batch.last_at.as_str()])?;
    Ok(())
}

fn create_log(connection: &Connection, batch: &EventBatch) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO conversations (id, events, created_at, last_updated_at) VALUES (?1, 0, ?2, ?2)",
        )?
        .execute([batch.conversation.as_str(), batch.first_at.as_str()])?;
    Ok(connection.last_insert_rowid())
}
