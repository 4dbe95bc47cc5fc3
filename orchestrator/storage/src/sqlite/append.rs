//! Append of events to a log, within the writer's transaction.

use engine::events::StoreError;
use protocol::{AgentState, UserId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::overview;
use crate::event_batch::EventBatch;

const ADVANCE: &str = "
    UPDATE conversations SET
        events = ?2,
        last_updated_at = ?3,
        overview_events = ?4,
        agent_state = coalesce(?5, agent_state),
        cost = coalesce(?6, cost),
        owner = coalesce(owner, ?7)
    WHERE number = ?1";

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

/// The end of a log, and that of its overview.
#[derive(Default)]
struct LogEnd {
    number: i64,
    events: u64,
    overview_events: u64,
}

/// Appends the events. Reads the end of the log in the same transaction, because another process
/// may have appended.
pub(super) fn write(connection: &Connection, batch: &EventBatch) -> Result<(), ChangeError> {
    let log = match find_end(connection, batch)? {
        Some(found) => found,
        None => create_log(connection, batch)?,
    };
    if batch.first.0 != log.events {
        return Err(ChangeError::Rejected(batch.out_of_order()));
    }
    let mut insert = connection.prepare_cached(
        "INSERT INTO events (conversation, id, json, blob) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (id, row) in (log.events..).zip(&batch.rows) {
        insert.execute(params![log.number, id, row.json(), row.blob()])?;
    }
    advance(connection, &log, batch)?;
    Ok(())
}

/// Sets the ends of the log and of its overview. An overview without earlier events is completed
/// when the store is opened.
fn advance(connection: &Connection, log: &LogEnd, batch: &EventBatch) -> rusqlite::Result<()> {
    let end = log.events + batch.rows.len() as u64;
    let change = (log.overview_events == log.events).then_some(&batch.overview);
    let overview = change.map(|change| &change.overview);
    connection.prepare_cached(ADVANCE)?.execute(params![
        log.number,
        end,
        batch.last_at.as_str(),
        if change.is_some() {
            end
        } else {
            log.overview_events
        },
        overview
            .and_then(|overview| overview.agent_state)
            .map(AgentState::as_str),
        overview.and_then(|overview| overview.cost),
        overview
            .and_then(|overview| overview.owner.as_ref())
            .map(UserId::as_str),
    ])?;
    change.map_or(Ok(()), |change| {
        overview::merge_texts(connection, log.number, change)
    })
}

fn find_end(connection: &Connection, batch: &EventBatch) -> rusqlite::Result<Option<LogEnd>> {
    connection
        .prepare_cached("SELECT number, events, overview_events FROM conversations WHERE id = ?1")?
        .query_row([batch.conversation.as_str()], |row| {
            Ok(LogEnd {
                number: row.get(0)?,
                events: row.get(1)?,
                overview_events: row.get(2)?,
            })
        })
        .optional()
}

fn create_log(connection: &Connection, batch: &EventBatch) -> rusqlite::Result<LogEnd> {
    connection
        .prepare_cached(
            "INSERT INTO conversations (id, events, created_at, last_updated_at) VALUES (?1, 0, ?2, ?2)",
        )?
        .execute([batch.conversation.as_str(), batch.first_at.as_str()])?;
    Ok(LogEnd {
        number: connection.last_insert_rowid(),
        ..LogEnd::default()
    })
}
