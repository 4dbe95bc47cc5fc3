//! Completion of overviews that lack events of their logs, when the store is opened: an older
//! version of Glovebox wrote them.
//!
//! Several hosts may do so concurrently, and append meanwhile. A failure is logged only: a list
//! reads the missing events of a conversation from its log.

use std::time::{Duration, Instant};

use engine::events::{OverviewChange, StoreError};
use protocol::{ConversationId, EventId};

use super::database::{Database, DatabaseError};
use super::{overview, read};
use crate::blobs::BlobStore;

/// Number of events per read. Bounds the memory.
const PAGE_SIZE: usize = 64;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Up to 100 conversations from a number on.
const GAPS: &str = "
    SELECT number, id, overview_events, events FROM conversations
    WHERE number > $1 AND overview_events < events
    ORDER BY number LIMIT 100";

/// A conversation whose overview lacks events.
struct Gap {
    number: i64,
    conversation: String,
    first: i64,
    past: i64,
}

#[derive(Debug, thiserror::Error)]
enum CatchUpError {
    #[error("cannot read events")]
    Read(#[from] StoreError),
    #[error("cannot use the database")]
    Database(#[from] DatabaseError),
    #[error("cannot read a row")]
    Row(#[from] tokio_postgres::Error),
}

/// Completes all overviews. Skips damaged events, with those that follow them.
pub(super) async fn run(reads: &Database, writes: &Database, blobs: Option<&BlobStore>) {
    match complete_all(reads, writes, blobs).await {
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
async fn complete_all(
    reads: &Database,
    writes: &Database,
    blobs: Option<&BlobStore>,
) -> Result<u64, CatchUpError> {
    let (mut completed, mut last, mut reported) = (0, 0, Instant::now());
    loop {
        let gaps = find_gaps(reads, last).await?;
        let Some(end) = gaps.last() else {
            return Ok(completed);
        };
        last = end.number;
        for gap in &gaps {
            completed += u64::from(fill(reads, writes, blobs, gap).await?);
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                tracing::info!(completed, "completing the overviews of conversations");
            }
        }
    }
}

async fn find_gaps(database: &Database, from: i64) -> Result<Vec<Gap>, CatchUpError> {
    let rows = database.query(GAPS, &[&from]).await?;
    let gap = |row: &tokio_postgres::Row| {
        Ok(Gap {
            number: row.try_get(0)?,
            conversation: row.try_get(1)?,
            first: row.try_get(2)?,
            past: row.try_get(3)?,
        })
    };
    rows.iter().map(gap).collect()
}

/// Applies the missing events. Returns whether all of them are readable.
async fn fill(
    reads: &Database,
    writes: &Database,
    blobs: Option<&BlobStore>,
    gap: &Gap,
) -> Result<bool, CatchUpError> {
    // A damaged entry. The list says so.
    let Ok(conversation) = gap.conversation.parse::<ConversationId>() else {
        return Ok(false);
    };
    let (mut first, mut past) = (gap.first, gap.past);
    while first < past {
        let limit = usize::try_from(past - first)
            .unwrap_or(PAGE_SIZE)
            .min(PAGE_SIZE);
        let page = read::events(
            reads,
            &conversation,
            (EventId(first.unsigned_abs()), limit),
            usize::MAX,
        )
        .await;
        let events = match page {
            Ok(page) => page.with_blobs(blobs, &conversation).await,
            Err(error) => Err(error),
        };
        match events {
            Ok(events) if events.is_empty() => return Ok(false),
            Ok(events) => {
                let next = first + i64::try_from(events.len()).unwrap_or(i64::MAX);
                overview::merge(
                    writes,
                    gap.number,
                    (first, next),
                    &OverviewChange::from_events(&events),
                )
                .await?;
                first = next;
            }
            Err(StoreError::Damaged { id, .. }) => {
                tracing::debug!(%conversation, %id, "an overview ends before a damaged event");
                past = i64::try_from(id.0).unwrap_or(first).min(past - 1);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(past == gap.past)
}
