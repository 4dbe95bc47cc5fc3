//! Completion of overviews that lack events of their logs, when the store is opened: an older
//! version of Glovebox wrote them.
//!
//! Works in short transactions, so that other processes can append, and continues after an
//! interruption. Blobs are read between transactions. A failure is logged only: a list reads the
//! missing events of a conversation from its log.

use std::ops::Range;
use std::time::{Duration, Instant};

use engine::events::{OverviewChange, StoreError};
use protocol::{ConversationId, Event, EventId};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use tokio::runtime::Handle;

use super::overview;
use super::read::{ReadError, read_range};
use crate::blobs::BlobStore;
use crate::event_page::EventPage;

/// Time after which a transaction starts no further page of events. Other processes that write wait
/// for its end.
const TRANSACTION_TIME: Duration = Duration::from_millis(500);

/// Time between transactions. A process that waits for the lock tries it every 100 ms, and would
/// fail after 5 s without one.
const PAUSE: Duration = Duration::from_millis(110);

/// Number of events per read. Bounds the memory.
const PAGE_SIZE: u64 = 64;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A conversation whose overview lacks events.
struct Gap {
    number: i64,
    conversation: String,
    events: Range<u64>,
}

/// How far a gap is filled.
enum Filled {
    Partly,
    UpToDamage,
    Completely,
    /// Not at all, because the next page has events in blobs.
    UpToBlobs(EventPage),
}

/// A page whose blobs are read before the next transaction.
struct BlobPage {
    gap: Gap,
    page: EventPage,
}

#[derive(Debug, thiserror::Error)]
enum CatchUpError {
    #[error("cannot use the file")]
    File(#[from] rusqlite::Error),
    #[error("cannot read a blob")]
    Blob(#[from] StoreError),
}

/// Completes all overviews. Skips damaged events, with those that follow them. Runs on a blocking
/// thread of the runtime.
pub(super) fn run(connection: &mut Connection, blobs: Option<&BlobStore>) {
    match complete_all(connection, blobs) {
        Ok(0) => {}
        Ok(count) => tracing::info!(
            conversations = count,
            "completed the overviews of conversations"
        ),
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cannot complete the overviews of conversations: lists of them are slower"
        ),
    }
}

/// Returns the number of conversations whose overview was completed.
fn complete_all(
    connection: &mut Connection,
    blobs: Option<&BlobStore>,
) -> Result<u64, CatchUpError> {
    let total = count_gaps(connection)?;
    let (mut completed, mut from, mut reported) = (0, 0, Instant::now());
    let mut is_complete = total == 0;
    while !is_complete {
        let mut in_blobs = None;
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
                Filled::UpToBlobs(page) => {
                    from = gap.number;
                    in_blobs = Some(BlobPage { gap, page });
                    break;
                }
            };
        }
        transaction.commit()?;
        if let Some(BlobPage { gap, page }) = in_blobs {
            let events = Handle::current().block_on(read_blobs(page, blobs, &gap.conversation))?;
            if !merge_read(connection, &gap, &events)? {
                from = gap.number + 1;
            } else if gap.events.start + events.len() as u64 == gap.events.end {
                completed += 1;
            }
        }
        if !is_complete {
            std::thread::sleep(PAUSE);
        }
        if reported.elapsed() >= REPORT_INTERVAL {
            reported = Instant::now();
            tracing::info!(
                completed,
                total,
                "completing the overviews of conversations"
            );
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
            "SELECT number, id, overview_events, events FROM conversations
             WHERE number >= ?1 AND overview_events < events ORDER BY number LIMIT 1",
        )?
        .query_row([from], |row| {
            let conversation = row
                .get_ref(1)?
                .as_bytes()
                .map(String::from_utf8_lossy)?
                .into_owned();
            Ok(Gap {
                number: row.get(0)?,
                conversation,
                events: row.get(2)?..row.get(3)?,
            })
        })
        .optional()
}

/// Applies the next page of events.
fn fill(
    transaction: &Transaction<'_>,
    Gap {
        number,
        conversation,
        events,
    }: &Gap,
) -> rusqlite::Result<Filled> {
    let end = events.end.min(events.start + PAGE_SIZE);
    match apply(transaction, *number, events.start..end) {
        Ok(Some(page)) => Ok(Filled::UpToBlobs(page)),
        Ok(None) if end == events.end => Ok(Filled::Completely),
        Ok(None) => Ok(Filled::Partly),
        Err(ReadError::Storage(error)) => Err(error),
        Err(ReadError::Damaged(id, damage)) => {
            tracing::debug!(conversation, %id, %damage, "an overview ends before a damaged event");
            match apply(transaction, *number, events.start..id.0) {
                Err(ReadError::Storage(error)) => Err(error),
                Ok(Some(page)) => Ok(Filled::UpToBlobs(page)),
                _ => Ok(Filled::UpToDamage),
            }
        }
    }
}

/// Applies events. Returns their rows instead if some are in blobs.
fn apply(
    transaction: &Transaction<'_>,
    number: i64,
    ids: Range<u64>,
) -> Result<Option<EventPage>, ReadError> {
    let end = ids.end;
    match read_range(transaction, number, ids, usize::MAX)?.without_blobs() {
        Ok(events) => {
            overview::merge(
                transaction,
                number,
                end,
                &OverviewChange::from_events(&events),
            )?;
            Ok(None)
        }
        Err(page) => Ok(Some(page)),
    }
}

/// Returns the events of a page up to a damaged one.
async fn read_blobs(
    page: EventPage,
    blobs: Option<&BlobStore>,
    conversation: &str,
) -> Result<Vec<Event>, StoreError> {
    // A damaged entry. The list says so.
    let Ok(conversation) = conversation.parse::<ConversationId>() else {
        return Ok(Vec::new());
    };
    page.with_blobs_up_to_damage(blobs, &conversation).await
}

/// Applies events that were read outside of a transaction, unless another process has done so.
/// Returns whether there are any.
fn merge_read(connection: &mut Connection, gap: &Gap, events: &[Event]) -> rusqlite::Result<bool> {
    let Some(last) = events.last() else {
        return Ok(false);
    };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let covered: Option<u64> = transaction
        // A number is used again after a removal.
        .prepare_cached("SELECT overview_events FROM conversations WHERE number = ?1 AND id = ?2")?
        .query_row(params![gap.number, gap.conversation], |row| row.get(0))
        .optional()?;
    if covered == Some(gap.events.start) {
        let EventId(end) = last.id.next();
        overview::merge(
            &transaction,
            gap.number,
            end,
            &OverviewChange::from_events(events),
        )?;
    }
    transaction.commit()?;
    Ok(true)
}
