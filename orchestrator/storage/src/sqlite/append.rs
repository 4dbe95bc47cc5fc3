//! Append of events to a log, within the writer's transaction.

use engine::events::StoreError;
use protocol::{ConversationId, Event, EventId, Timestamp};
use rusqlite::{Connection, params};

use super::failed;
use super::read::find_log;

/// Consecutive events as JSON. Serialized before they are queued, so that serialization cannot fail in the writer.
pub(super) struct Append {
    conversation: ConversationId,
    first: EventId,
    first_at: Timestamp,
    last_at: Timestamp,
    rows: Vec<String>,
}

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

impl Append {
    /// Serializes the events. `None` if there are none.
    pub(super) fn new(conversation: &ConversationId, events: &[Event]) -> Result<Option<Self>, StoreError> {
        let (Some(first), Some(last)) = (events.first(), events.last()) else {
            return Ok(None);
        };
        if let Some(pair) = events.windows(2).find(|pair| pair[1].id != pair[0].id.next()) {
            return Err(StoreError::OutOfOrder { conversation: conversation.clone(), id: pair[1].id });
        }
        let rows: Result<Vec<_>, _> = events.iter().map(serde_json::to_string).collect();
        Ok(Some(Self {
            conversation: conversation.clone(),
            first: first.id,
            first_at: first.timestamp.clone(),
            last_at: last.timestamp.clone(),
            rows: rows.map_err(|error| failed("write events as JSON", error))?,
        }))
    }

    /// Appends the events. Reads the end of the log in the same transaction, because another process may have appended.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), ChangeError> {
        let (number, end) = match find_log(connection, &self.conversation)? {
            Some(log) => log,
            None => (self.create_log(connection)?, 0),
        };
        if self.first.0 != end {
            let conversation = self.conversation.clone();
            return Err(ChangeError::Rejected(StoreError::OutOfOrder { conversation, id: self.first }));
        }
        let mut insert =
            connection.prepare_cached("INSERT INTO events (conversation, id, json) VALUES (?1, ?2, ?3)")?;
        for (id, json) in (end..).zip(&self.rows) {
            insert.execute(params![number, id, json])?;
        }
        connection
            .prepare_cached("UPDATE conversations SET events = ?2, last_updated_at = ?3 WHERE number = ?1")?
            .execute(params![number, end + self.rows.len() as u64, self.last_at.as_str()])?;
        Ok(())
    }

    fn create_log(&self, connection: &Connection) -> rusqlite::Result<i64> {
        connection
            .prepare_cached(
                "INSERT INTO conversations (id, events, created_at, last_updated_at) VALUES (?1, 0, ?2, ?2)",
            )?
            .execute([self.conversation.as_str(), self.first_at.as_str()])?;
        Ok(connection.last_insert_rowid())
    }
}
