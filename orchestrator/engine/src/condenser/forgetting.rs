//! Selects the events to forget, and creates the condensation.

use protocol::Action;
use protocol::action::CondensationAction;

use super::CondenserOutput;
use crate::agent::{AgentStep, ModelCall};
use crate::view::{Retention, View, ViewEntry};

/// The limits of a history. If exceeded, or on request, half of the history is forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct HistoryBounds {
    /// Number of first events that are kept.
    pub(super) keep_first: usize,
    /// Maximum number of events.
    pub(super) max_size: usize,
}

impl HistoryBounds {
    /// Returns the number of events to keep. `None` if no condensation is due.
    pub(super) fn target(self, view: &View) -> Option<usize> {
        let is_due = view.len() > self.max_size || view.is_condensation_requested();
        is_due.then(|| view.len().min(self.max_size) / 2)
    }

    /// Returns the events to forget. `None` if no condensation is due, or if it would not reduce
    /// the number of events.
    pub(super) fn select_forgotten(
        self,
        view: &View,
        summary: SummaryMode,
    ) -> Option<Vec<&ViewEntry>> {
        let kept_first = self.keep_first + usize::from(summary == SummaryMode::Written);
        let keep_last = self.target(view)?.saturating_sub(kept_first);
        let forgotten = between(view, self.keep_first, keep_last);
        let is_added = summary == SummaryMode::Written && view.summary().is_none();
        (forgotten.len() > usize::from(is_added)).then_some(forgotten)
    }
}

/// Whether a summary replaces the forgotten events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SummaryMode {
    Written,
    None,
}

/// Returns a predicate for events that may be forgotten between the first `keep_first` and the last
/// `keep_last` ones. The position of an event is that of its group. The latest group is kept.
pub(super) fn is_between(
    view: &View,
    keep_first: usize,
    keep_last: usize,
) -> impl Fn(&ViewEntry) -> bool + use<> {
    // Ids increase along the view, except for the summary's.
    let start = |index| {
        let mut rest = view
            .entries()
            .iter()
            .skip(index)
            .filter(|entry| entry.retention != Retention::Summary);
        rest.next().map_or(view.end(), |entry| entry.event.id)
    };
    let between = start(keep_first)..start(view.len().saturating_sub(keep_last));
    let latest = view.latest().map(|entry| entry.group);
    move |entry| {
        entry.retention == Retention::Forgettable
            && Some(entry.group) != latest
            && between.contains(&entry.group)
    }
}

/// Returns the events that match [`is_between`].
pub(super) fn between(view: &View, keep_first: usize, keep_last: usize) -> Vec<&ViewEntry> {
    let is_between = is_between(view, keep_first, keep_last);
    view.entries()
        .iter()
        .filter(|entry| is_between(entry))
        .collect()
}

/// Creates the condensation that forgets the given events, which are in the order of the view.
/// `call` is its model call.
pub(super) fn condensation(
    view: &View,
    forgotten: &[&ViewEntry],
    summary: Option<String>,
    call: Option<ModelCall>,
) -> CondenserOutput {
    let mut condensation = CondensationAction::default();
    if let (Some(first), Some(last)) = (forgotten.first(), forgotten.last()) {
        let (first, last) = (first.event.id, last.event.id);
        if summary.is_some() {
            condensation.summary_offset = Some(number(view.offset_of(first) as u64));
        }
        let in_range = view.entries().iter().filter(|entry| {
            entry.retention == Retention::Forgettable && (first..=last).contains(&entry.event.id)
        });
        if in_range.count() == forgotten.len() {
            condensation.forgotten_events_start_id = Some(number(first.0));
            condensation.forgotten_events_end_id = Some(number(last.0));
        } else {
            let ids = forgotten.iter().map(|entry| number(entry.event.id.0));
            condensation.forgotten_event_ids = Some(ids.collect());
        }
    }
    condensation.summary = summary;
    CondenserOutput::Condensation(Box::new(AgentStep {
        call,
        ..AgentStep::new(Action::from(condensation))
    }))
}

/// Converts to V0's type of ids and offsets.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
