//! Reads events of a log, and the list of conversations. Each in one snapshot.
//!
//! A missing row, or a row whose event has another id than its key, is an error and never skipped.

use std::ops::Range;

use engine::events::{ConversationList, ConversationSummary, StoreError};
use protocol::{ConversationId, EventId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::failed;
use crate::event_page::EventPage;
use crate::stored_event::Damage;

const READ_EVENTS: &str = "read events";
pub(super) const READ_CONVERSATIONS: &str = "read the list of conversations";

/// Error of reading a range of events.
pub(super) enum ReadError {
    Storage(rusqlite::Error),
    Damaged(EventId, Damage),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Storage(error)
    }
}

/// Reads up to `limit` events from `from`, up to the one that exceeds `max_bytes`. Empty if the
/// conversation does not exist.
pub(super) fn events(
    connection: &mut Connection,
    conversation: &ConversationId,
    (from, limit): (EventId, usize),
    max_bytes: usize,
) -> Result<EventPage, StoreError> {
    let snapshot = connection
        .transaction()
        .map_err(|error| failed(READ_EVENTS, error))?;
    let log = find_log(&snapshot, conversation).map_err(|error| failed(READ_EVENTS, error))?;
    let Some((number, end)) = log else {
        return Ok(EventPage::default());
    };
    let end = end.min(from.0.saturating_add(limit as u64));
    if from.0 >= end {
        return Ok(EventPage::default());
    }
    read_range(&snapshot, number, from.0..end, max_bytes).map_err(|error| match error {
        ReadError::Storage(error) => failed(READ_EVENTS, error),
        ReadError::Damaged(id, damage) => StoreError::Damaged {
            conversation: conversation.clone(),
            id,
            source: Box::new(damage),
        },
    })
}

/// Returns the number of a conversation and the id of its next event. `None` if it has no log.
fn find_log(
    connection: &Connection,
    conversation: &ConversationId,
) -> rusqlite::Result<Option<(i64, u64)>> {
    connection
        .prepare_cached("SELECT number, events FROM conversations WHERE id = ?1")?
        .query_row([conversation.as_str()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()
}

/// Parses the events from SQLite's buffers, without a copy of their text. Those in blobs are left
/// to the caller.
pub(super) fn read_range(
    snapshot: &Connection,
    number: i64,
    ids: Range<u64>,
    max_bytes: usize,
) -> Result<EventPage, ReadError> {
    let mut statement = snapshot.prepare_cached(
        "SELECT id, json, blob FROM events WHERE conversation = ?1 AND id >= ?2 AND id < ?3 ORDER BY id",
    )?;
    let mut rows = statement.query(params![number, ids.start, ids.end])?;
    let mut page = EventPage::default();
    for id in ids.map(EventId) {
        if page.size_bytes() > max_bytes {
            break;
        }
        let damaged = |damage| ReadError::Damaged(id, damage);
        let row = rows.next()?.filter(|row| row.get(0) == Ok(id.0));
        let row = row.ok_or_else(|| damaged(Damage::Missing))?;
        // As bytes, so that invalid UTF-8 is damage of this event and not a failure of SQLite.
        let json = row.get_ref(1)?.as_bytes().unwrap_or_default();
        let blob = row.get_ref(2)?.as_bytes_or_null().unwrap_or_default();
        page.add_row(id, json, blob).map_err(damaged)?;
    }
    Ok(page)
}

/// Lists the conversations, latest first. Times are compared as text (ISO 8601 in UTC). Damaged
/// rows are listed separately.
pub(super) fn conversations(connection: &mut Connection) -> Result<ConversationList, StoreError> {
    list_conversations(connection).map_err(|error| failed(READ_CONVERSATIONS, error))
}

fn list_conversations(connection: &Connection) -> rusqlite::Result<ConversationList> {
    let mut statement = connection.prepare_cached(
        "SELECT id, events, created_at, last_updated_at FROM conversations
         ORDER BY last_updated_at DESC, number DESC",
    )?;
    let mut rows = statement.query([])?;
    let mut list = ConversationList::default();
    while let Some(row) = rows.next()? {
        match parse_summary(row) {
            Ok(summary) => list.conversations.push(summary),
            Err(source) => list.damaged.push(damaged_entry(row, source)?),
        }
    }
    Ok(list)
}

pub(super) fn damaged_entry(
    row: &Row<'_>,
    source: rusqlite::Error,
) -> rusqlite::Result<StoreError> {
    let id = row.get_ref(0)?.as_bytes().unwrap_or_default();
    let conversation = String::from_utf8_lossy(id).into_owned();
    Ok(StoreError::DamagedEntry {
        conversation,
        source: Box::new(source),
    })
}

pub(super) fn parse_summary(row: &Row<'_>) -> rusqlite::Result<ConversationSummary> {
    Ok(ConversationSummary {
        id: parse_column(row, 0, ConversationId::try_from)?,
        events: row.get(1)?,
        created_at: parse_column(row, 2, Timestamp::try_from)?,
        last_updated_at: parse_column(row, 3, Timestamp::try_from)?,
    })
}

pub(super) fn parse_column<T, E>(
    row: &Row<'_>,
    column: usize,
    parse: fn(String) -> Result<T, E>,
) -> rusqlite::Result<T>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    parse(row.get(column)?).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, error.into())
    })
}
