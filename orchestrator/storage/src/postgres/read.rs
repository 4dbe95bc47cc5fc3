//! Reads events of a log, and the list of conversations. Each in one statement, and so in one
//! snapshot.
//!
//! A missing row, or a row with another event than its key says, is an error and never skipped.

use engine::events::{ConversationList, ConversationSummary, StoreError};
use protocol::{ConversationId, EventId, Timestamp};
use tokio_postgres::Row;

use super::database::Database;
use crate::event_page::EventPage;
use crate::failure::failed;
use crate::stored_event::Damage;

const READ_EVENTS: &str = "read events";
pub(super) const READ_CONVERSATIONS: &str = "read the list of conversations";

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The end of the log, and a row per stored event before it, up to the one that exceeds a number of
/// bytes. The only row has no event if none is in the range.
const EVENTS: &str = "
    SELECT log_end, id, json, blob
    FROM (
        SELECT conversations.events AS log_end, events.id, events.json, events.blob,
            sum(octet_length(events.json)) OVER (ORDER BY events.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM conversations LEFT JOIN events
            ON events.conversation = conversations.number
            AND events.id >= $2 AND events.id < least($3, conversations.events)
        WHERE conversations.id = $1
    ) AS page
    WHERE coalesce(before, 0) <= $4
    ORDER BY id";

/// Times are compared as text (ISO 8601 in UTC).
const CONVERSATIONS: &str = "
    SELECT id, events, created_at, last_updated_at FROM conversations
    ORDER BY last_updated_at DESC, number DESC";

pub(super) async fn events(
    database: &Database,
    conversation: &ConversationId,
    (from, limit): (EventId, usize),
    max_bytes: usize,
) -> Result<EventPage, StoreError> {
    let past = i64::try_from(from.0.saturating_add(limit as u64)).unwrap_or(i64::MAX);
    let Ok(start) = i64::try_from(from.0) else {
        return Ok(EventPage::default());
    };
    let max = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let rows = database
        .query(EVENTS, &[&conversation.as_str(), &start, &past, &max])
        .await;
    let rows = rows.map_err(|error| failed(READ_EVENTS, error))?;
    let Some(first) = rows.first() else {
        return Ok(EventPage::default());
    };
    let end = first
        .try_get::<_, i64>(0)
        .map_err(|error| failed(READ_EVENTS, error))?
        .min(past);
    // On another thread, because megabytes take milliseconds.
    let parsing = tokio::task::spawn_blocking(move || range(&rows, start..end, max_bytes)).await;
    parsing
        .map_err(|error| failed(READ_EVENTS, error))?
        .map_err(|(id, source)| StoreError::Damaged {
            conversation: conversation.clone(),
            id,
            source,
        })
}

/// Parses the rows, which must have exactly these ids, up to the one that exceeds `max_bytes`.
fn range(
    rows: &[Row],
    ids: std::ops::Range<i64>,
    max_bytes: usize,
) -> Result<EventPage, (EventId, BoxError)> {
    let mut rows = rows.iter();
    let mut page = EventPage::default();
    for id in ids {
        if page.size_bytes() > max_bytes {
            break;
        }
        add_row(&mut page, id, rows.next())
            .map_err(|source| (EventId(id.unsigned_abs()), source))?;
    }
    Ok(page)
}

fn add_row(page: &mut EventPage, id: i64, row: Option<&Row>) -> Result<(), BoxError> {
    let row = row.ok_or(Damage::Missing)?;
    if row.try_get::<_, Option<i64>>(1)? != Some(id) {
        return Err(Damage::Missing.into());
    }
    let blob = row.try_get::<_, Option<&str>>(3)?.map(str::as_bytes);
    Ok(page.add_row(EventId(id.unsigned_abs()), row.try_get(2)?, blob)?)
}

/// Lists the conversations, latest first. Damaged rows are listed separately.
pub(super) async fn conversations(database: &Database) -> Result<ConversationList, StoreError> {
    let rows = database
        .query(CONVERSATIONS, &[])
        .await
        .map_err(|error| failed(READ_CONVERSATIONS, error))?;
    let mut list = ConversationList::default();
    for row in &rows {
        match summary(row) {
            Ok(summary) => list.conversations.push(summary),
            Err(source) => {
                let conversation = row.try_get(0).unwrap_or_default();
                list.damaged.push(StoreError::DamagedEntry {
                    conversation,
                    source,
                });
            }
        }
    }
    Ok(list)
}

pub(super) fn summary(row: &Row) -> Result<ConversationSummary, BoxError> {
    Ok(ConversationSummary {
        id: ConversationId::try_from(row.try_get::<_, String>(0)?)?,
        events: u64::try_from(row.try_get::<_, i64>(1)?)?,
        created_at: Timestamp::try_from(row.try_get::<_, String>(2)?)?,
        last_updated_at: Timestamp::try_from(row.try_get::<_, String>(3)?)?,
    })
}
