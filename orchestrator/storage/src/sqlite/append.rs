//! One append: what is written for it, inside the transaction that the writer has opened.

use engine::events::StoreError;
use protocol::{ConversationId, Event, EventId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failed;

/// Events that follow each other, already as text: what does not serialize never reaches the writer.
pub(super) struct Append {
    conversation: ConversationId,
    first: EventId,
    first_at: Timestamp,
    last_at: Timestamp,
    rows: Vec<String>,
}

/// Why a change was not carried out.
pub(super) enum Refusal {
    /// It does not fit what is stored.
    Rejected(StoreError),
    /// The storage failed.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl Append {
    /// Nothing, when there are no events.
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
            rows: rows.map_err(|error| failed("writing events as JSON", error))?,
        }))
    }

    fn out_of_order(&self) -> StoreError {
        StoreError::OutOfOrder { conversation: self.conversation.clone(), id: self.first }
    }

    /// Reads the log's end in the same transaction, so that an append of another process is seen too.
    pub(super) fn write(&self, connection: &Connection) -> Result<(), Refusal> {
        let (number, end) = match self.end_of_log(connection)? {
            Some(found) => found,
            None => (self.create_log(connection)?, 0),
        };
        if self.first.0 != end {
            return Err(Refusal::Rejected(self.out_of_order()));
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

    /// The conversation's number, and the id that its next event has.
    fn end_of_log(&self, connection: &Connection) -> rusqlite::Result<Option<(i64, u64)>> {
        connection
            .prepare_cached("SELECT number, events FROM conversations WHERE id = ?1")?
            .query_row([self.conversation.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
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
