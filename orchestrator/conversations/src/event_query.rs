//! Queries about the events of a conversation, answered in pages of a bounded size and time.

use std::ops::Range;
use std::time::Duration;

use engine::clock;
use protocol::{
    Action, ConversationId, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
};
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::{Conversations, ConversationsError, HostError};

/// Maximum number of events per read of the store. Bounds the memory.
const MAX_READ_SIZE: u64 = 64;

/// Time after which a page ends with what is found so far: few events of a long log may be
/// selected.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(20);

/// Selects events of a conversation. The default selects all of them, on one page of no event.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    /// The first event.
    pub from: EventId,
    /// The event after the last one. `None` for the end of the log.
    pub until: Option<EventId>,
    /// Whether the last event comes first.
    pub is_reverse: bool,
    /// Maximum number of events of the page.
    pub limit: usize,
    /// Length of the events of the page, in bytes of JSON. The page ends with the event that
    /// exceeds it.
    pub max_bytes: usize,
    /// Kinds of events to select. Empty selects all.
    pub kinds: Vec<String>,
    /// Kinds of events to leave out.
    pub excluded_kinds: Vec<String>,
    /// Whether hidden events are left out.
    pub excludes_hidden: bool,
    /// The source.
    pub source: Option<EventSource>,
    /// The earliest time, in seconds since the Unix epoch.
    pub earliest: Option<f64>,
    /// The latest time, in seconds since the Unix epoch.
    pub latest: Option<f64>,
    /// Text that the event's JSON contains, in any case.
    pub text: Option<String>,
}

/// The form in which a client sees an event. `None` if it does not see the event.
pub type EventView = fn(&Event) -> Option<Box<RawValue>>;

/// Events that a query has selected.
#[derive(Debug)]
pub struct SelectedEvents {
    /// The events.
    pub events: Vec<Box<RawValue>>,
    /// Whether further events are selected, or may be.
    pub has_more: bool,
    /// Where the search ended: in the order of the log the event after the last one that was
    /// searched, in reverse order that one itself.
    pub next: EventId,
}

impl Conversations {
    /// Returns the events that a query selects, in the form of a view. A page without events that
    /// has more was too long to search.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn query(
        &self,
        id: &ConversationId,
        query: EventQuery,
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
        let mut selection = Selection::new(query, view);
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

/// A page in progress.
struct Selection {
    query: EventQuery,
    view: EventView,
    page: SelectedEvents,
    size_bytes: usize,
}

impl Selection {
    fn new(query: EventQuery, view: EventView) -> Self {
        Self {
            page: SelectedEvents {
                events: Vec::new(),
                has_more: false,
                next: query.from,
            },
            query: EventQuery {
                text: query.text.map(|text| text.to_lowercase()),
                ..query
            },
            view,
            size_bytes: 0,
        }
    }

    /// Adds the selected ones of the next events until the page is full.
    fn with(mut self, next: &[Event]) -> Self {
        for event in next {
            if self.size_bytes > self.query.max_bytes {
                self.page.has_more = true;
                break;
            }
            if let Some(json) = self.select(event) {
                if self.page.events.len() == self.query.limit {
                    self.page.has_more = true;
                    break;
                }
                self.size_bytes += json.get().len();
                self.page.events.push(json);
            }
            self.page.next = match self.query.is_reverse {
                true => event.id,
                false => event.id.next(),
            };
        }
        self
    }

    /// Returns the JSON of an event that is selected.
    fn select(&self, event: &Event) -> Option<Box<RawValue>> {
        let query = &self.query;
        let kind = event.body.kind();
        let has_kind = |kinds: &[String]| kinds.iter().any(|name| name == kind);
        let time = || clock::epoch_seconds(&event.timestamp);
        let is_selected = (query.kinds.is_empty() || has_kind(&query.kinds))
            && !has_kind(&query.excluded_kinds)
            && !(query.excludes_hidden && is_hidden(event))
            && query.source.is_none_or(|source| event.source == source)
            && query.earliest.is_none_or(|earliest| time() >= earliest)
            && query.latest.is_none_or(|latest| time() <= latest);
        let json = is_selected.then(|| (self.view)(event)).flatten()?;
        let has_text = |text: &String| json.get().to_lowercase().contains(text);
        query.text.as_ref().is_none_or(has_text).then_some(json)
    }
}

fn is_hidden(event: &Event) -> bool {
    match &event.body {
        EventBody::Action(Action::Run(run)) => run.hidden,
        EventBody::Observation(Observation {
            kind: ObservationKind::Run(run),
            ..
        }) => run.hidden,
        _ => false,
    }
}
