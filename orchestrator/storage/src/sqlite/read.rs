//! What is read: a stretch of one log, and the list of all. Each in one snapshot.
//!
//! A row that is missing, or does not hold the event that its key names, is damage and never skipped.

use engine::events::{ConversationList, ConversationSummary, StoreError};
use protocol::{ConversationId, Event, EventId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::failed;

const EVENTS: &str = "reading events";
const CONVERSATIONS: &str = "reading the list of conversations";

/// What is wrong with a stored event.
#[derive(Debug, thiserror::Error)]
enum Damage {
    #[error("its row is missing")]
    Missing,
    #[error("its row holds event {0}")]
    Misplaced(EventId),
    #[error("its row holds no event")]
    Unreadable(#[from] serde_json::Error),
}

/// Why a stretch of a log cannot be read.
enum ReadError {
    Storage(rusqlite::Error),
    Damaged(EventId, Damage),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(error)
    }
}

pub(super) fn events(
    connection: &mut Connection,
    conversation: &ConversationId,
    from: EventId,
    limit: usize,
) -> Result<Vec<Event>, StoreError> {
    let snapshot = connection.transaction().map_err(|error| failed(EVENTS, error))?;
    let Some((number, end)) = log(&snapshot, conversation).map_err(|error| failed(EVENTS, error))? else {
        return Ok(Vec::new());
    };
    let end = end.min(from.0.saturating_add(limit as u64));
    if from.0 >= end {
        return Ok(Vec::new());
    }
    stretch(&snapshot, number, from.0..end).map_err(|error| match error {
        ReadError::Storage(error) => failed(EVENTS, error),
        ReadError::Damaged(id, damage) => {
            StoreError::Damaged { conversation: conversation.clone(), id, source: Box::new(damage) }
        }
    })
}

/// The conversation's number, and the id that its next event has.
fn log(snapshot: &Transaction<'_>, conversation: &ConversationId) -> rusqlite::Result<Option<(i64, u64)>> {
    snapshot
        .prepare_cached("SELECT number, events FROM conversations WHERE id = ?1")?
        .query_row([conversation.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Made into events where SQLite holds their text: a copy of it would be read a second time.
fn stretch(
    snapshot: &Transaction<'_>,
    number: i64,
    ids: std::ops::Range<u64>,
) -> Result<Vec<Event>, ReadError> {
    let mut statement = snapshot.prepare_cached(
        "SELECT id, json FROM events WHERE conversation = ?1 AND id >= ?2 AND id < ?3 ORDER BY id",
    )?;
    let mut rows = statement.query(params![number, ids.start, ids.end])?;
    let mut events: Vec<Event> = Vec::new();
    for id in ids.map(EventId) {
        let damaged = |damage| ReadError::Damaged(id, damage);
        let row = rows.next()?.filter(|row| row.get(0) == Ok(id.0));
        // Bytes, because text that is not UTF-8 is damage of one event and not of the storage.
        let json = row.ok_or_else(|| damaged(Damage::Missing))?.get_ref(1)?.as_bytes().unwrap_or_default();
        let event = event(id, json, events.last()).map_err(damaged)?;
        events.push(event);
    }
    Ok(events)
}

fn event(id: EventId, json: &[u8], before: Option<&Event>) -> Result<Event, Damage> {
    let event = Event::read_after(before, json)?;
    if event.id == id { Ok(event) } else { Err(Damage::Misplaced(event.id)) }
}

/// The latest first. Times compare as text: ISO 8601, written by us in UTC. A damaged row does not hide the others.
pub(super) fn conversations(connection: &mut Connection) -> Result<ConversationList, StoreError> {
    let list = |connection: &Connection| -> rusqlite::Result<ConversationList> {
        let mut statement = connection.prepare_cached(
            "SELECT id, events, created_at, last_updated_at FROM conversations
             ORDER BY last_updated_at DESC, number DESC",
        )?;
        let mut rows = statement.query([])?;
        let mut list = ConversationList::default();
        while let Some(row) = rows.next()? {
            match summary(row) {
                Ok(summary) => list.conversations.push(summary),
                Err(source) => list.damaged.push(damaged_entry(row, source)?),
            }
        }
        Ok(list)
    };
    list(connection).map_err(|error| failed(CONVERSATIONS, error))
}

fn damaged_entry(row: &Row<'_>, source: rusqlite::Error) -> rusqlite::Result<StoreError> {
    let id = row.get_ref(0)?.as_bytes().unwrap_or_default();
    let conversation = String::from_utf8_lossy(id).into_owned();
    Ok(StoreError::DamagedEntry { conversation, source: Box::new(source) })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<ConversationSummary> {
    Ok(ConversationSummary {
        id: parsed(row, 0, ConversationId::try_from)?,
        events: row.get(1)?,
        created_at: parsed(row, 2, Timestamp::try_from)?,
        last_updated_at: parsed(row, 3, Timestamp::try_from)?,
    })
}

fn parsed<T, E>(row: &Row<'_>, column: usize, parse: fn(String) -> Result<T, E>) -> rusqlite::Result<T>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    parse(row.get(column)?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}
