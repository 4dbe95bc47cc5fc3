//! Answers queries about the events of a conversation, in pages of a bounded size and time.

use std::ops::Range;
use std::time::Duration;

use protocol::{ConversationId, Event, EventId, EventQuery};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::event_query::Selection;
use crate::event_query::{EventView, SelectedEvents};
use crate::host::HostError;

/// Maximum number of events per read of the store. Bounds the memory.
const MAX_READ_SIZE: u64 = 128;

/// Time after which a page ends with what is found so far: few events of a long log may be
/// selected.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(20);

impl Conversations {
    /// Returns the events that a query selects, in the form of a view. The page ends with the event
    /// that exceeds `max_bytes` of JSON. A page without events that has more was too long to
    /// search.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn query(
        &self,
        id: &ConversationId,
        query: EventQuery,
        max_bytes: usize,
        view: EventView,
    ) -> Result<SelectedEvents, ConversationsError> {
        let mut end = query.until.map_or(u64::MAX, |until| until.0);
        if query.is_reverse {
            end = end.min(self.event_count(id).await?);
        }
        let mut scan = Scan {
            conversations: self,
            id,
            range: query.from.0..end,
            is_reverse: query.is_reverse,
            // Most pages select all events. Those that do not read on in larger steps.
            read_size: MAX_READ_SIZE.min(query.limit as u64 + 1),
        };
        let mut is_known = query.is_reverse;
        let mut selection = Selection::new(query, max_bytes, view);
        let deadline = Instant::now() + MAX_SEARCH_TIME;
        while !selection.page.has_more {
            let events = scan.next().await?;
            if events.is_empty() {
                break;
            }
            is_known = true;
            // The content of a log decides what this costs.
            let adding = spawn_blocking(move || selection.with(&events));
            selection = adding
                .await
                .map_err(|panic| HostError::Failed(panic.into()))?;
            selection.page.has_more |= Instant::now() >= deadline;
        }
        if !is_known {
            // Fails if there is no such conversation.
            self.event_count(id).await?;
        }
        Ok(selection.page)
    }
}

/// Reads a range of a log in steps.
struct Scan<'a> {
    conversations: &'a Conversations,
    id: &'a ConversationId,
    /// The ids that are not read yet.
    range: Range<u64>,
    is_reverse: bool,
    read_size: u64,
}

impl Scan<'_> {
    /// Returns the next events. Empty at the end.
    async fn next(&mut self) -> Result<Vec<Event>, ConversationsError> {
        while !self.range.is_empty() {
            let count = self.read_size.min(self.range.end - self.range.start);
            let from = if self.is_reverse {
                self.range.end - count
            } else {
                self.range.start
            };
            let mut events = self
                .conversations
                .read_page(self.id, EventId(from), count as usize)
                .await?;
            let Some(EventId(past)) = events.last().map(|last| last.id.next()) else {
                break;
            };
            if !self.is_reverse {
                self.range.start = past;
            } else if past < self.range.end {
                // The events are so large that the page ends before the range does.
                self.read_size = (count / 2).max(1);
                continue;
            } else {
                self.range.end = from;
                events.reverse();
            }
            self.read_size = (self.read_size * 2).min(MAX_READ_SIZE);
            return Ok(events);
        }
        Ok(Vec::new())
    }
}
