//! Completion of overviews that lack events of their logs, when the store is opened: an older version of Glovebox wrote them.
//!
//! Works in short transactions, so that other processes can append, and continues after an interruption. A failure is logged
//! only: a list reads the missing events of a conversation from its log.

use std::ops::Range;
use std::time::{Duration, Instant};

use engine::events::OverviewChange;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use super::overview;
use super::read::{ReadError, read_range};

/// Time after which a transaction starts no further page of events. Other processes that write wait for its end.
const TRANSACTION_TIME: Duration = Duration::from_millis(500);

/// Time between transactions. A process that waits for the lock tries it every 100 ms, and would fail after 5 s without one.
const PAUSE: Duration = Duration::from_millis(110);

/// Number of events per read. Bounds the memory.
const PAGE_SIZE: u64 = 64;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A conversation whose overview lacks events.
struct Gap {
    number: i64,
    events: Range<u64>,
}

/// How far a gap is filled.
enum Filled {
    Partly,
    UpToDamage,
    Completely,
}

/// Completes all overviews. Skips damaged events, with those that follow them.
pub(super) fn run(connection: &mut Connection) {
    match complete_all(connection) {
        Ok(0) => {}
        Ok(count) => tracing::info!(conversations = count, "completed the overviews of conversations"),
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot complete the overviews of conversations: lists of them are slower"
        ),
    }
}

/// Returns the number of conversations whose overview was completed.
fn complete_all(connection: &mut Connection) -> rusqlite::Result<u64> {
    let total = count_gaps(connection)?;
    let (mut completed, mut from, mut reported) = (0, 0, Instant::now());
    let mut is_complete = total == 0;
    while !is_complete {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let started = Instant::now();
        while started.elapsed() < TRANSACTION_TIME {
            let Some(gap) = find_gap(&transaction, from)? else {
                is_complete = true;
                break;
            };
            from = match fill(&transaction, &gap)? {
                Filled::Partly => gap.number,
                Filled::UpToDamage => gap.number + 1,
                Filled::Completely => {
                    completed += 1;
                    gap.number + 1
                }
            };
        }
        transaction.commit()?;
        if !is_complete {
            std::thread::sleep(PAUSE);
        }
        if reported.elapsed() >= REPORT_INTERVAL {
            reported = Instant::now();
            tracing::info!(completed, total, "completing the overviews of conversations");
        }
    }
    Ok(completed)
}

fn count_gaps(connection: &Connection) -> rusqlite::Result<u64> {
    const COUNT: &str = "SELECT count(*) FROM conversations WHERE overview_events < events";
    connection.query_row(COUNT, [], |row| row.get(0))
}

/// Returns the first conversation with a gap from this number on.
fn find_gap(transaction: &Transaction<'_>, from: i64) -> rusqlite::Result<Option<Gap>> {
    transaction
        .prepare_cached(
            "SELECT number, overview_events, events FROM conversations
             WHERE number >= ?1 AND overview_events < events ORDER BY number LIMIT 1",
        )?
        .query_row([from], |row| Ok(Gap { number: row.get(0)?, events: row.get(1)?..row.get(2)? }))
        .optional()
}

/// Applies the next page of events.
fn fill(transaction: &Transaction<'_>, Gap { number, events }: &Gap) -> rusqlite::Result<Filled> {
    let end = events.end.min(events.start + PAGE_SIZE);
    match apply(transaction, *number, events.start..end) {
        Ok(()) if end == events.end => Ok(Filled::Completely),
        Ok(()) => Ok(Filled::Partly),
        Err(ReadError::Storage(error)) => Err(error),
        Err(ReadError::Damaged(id, damage)) => {
            tracing::debug!(conversation = number, %id, %damage, "an overview ends before a damaged event");
            match apply(transaction, *number, events.start..id.0) {
                Err(ReadError::Storage(error)) => Err(error),
                _ => Ok(Filled::UpToDamage),
            }
        }
    }
}

fn apply(transaction: &Transaction<'_>, number: i64, events: Range<u64>) -> Result<(), ReadError> {
    let end = events.end;
    let change = OverviewChange::from_events(&read_range(transaction, number, events)?);
    Ok(overview::merge(transaction, number, end, &change)?)
}
