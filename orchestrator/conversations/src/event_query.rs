//! The events that a query selects.

use engine::clock;
use protocol::{Action, Event, EventBody, EventId, EventQuery, Observation, ObservationKind};
use serde_json::value::RawValue;

/// The form in which a client sees an event. `None` if it does not see the event.
pub type EventView = fn(&Event) -> Option<Box<RawValue>>;

/// Events that a query has selected.
#[derive(Debug)]
pub struct SelectedEvents {
    /// The events, as JSON.
    pub events: Vec<Box<RawValue>>,
    /// Whether further events are selected, or may be.
    pub has_more: bool,
    /// Where the search ended. In the order of the log, the event after the last searched one; in
    /// reverse order, the last searched one.
    pub next: EventId,
}

/// A page in progress.
pub(crate) struct Selection {
    query: EventQuery,
    max_bytes: usize,
    view: EventView,
    pub(crate) page: SelectedEvents,
    size_bytes: usize,
}

impl Selection {
    pub(crate) fn new(query: EventQuery, max_bytes: usize, view: EventView) -> Self {
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
            max_bytes,
            view,
            size_bytes: 0,
        }
    }

    /// Adds the selected ones of the next events until the page is full.
    pub(crate) fn with(mut self, next: &[Event]) -> Self {
        for event in next {
            if self.size_bytes > self.max_bytes {
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
