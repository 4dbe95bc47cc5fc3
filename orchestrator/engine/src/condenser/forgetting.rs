//! What of a view may be forgotten, when, and how that is said.

use protocol::Action;
use protocol::action::CondensationAction;

use super::CondenserOutput;
use crate::agent::{AgentStep, ModelCall};
use crate::view::{Shown, Standing, View};

/// How long a history may become: beyond it, or when it is asked for, half of it is forgotten.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Events at the beginning that stay.
    pub(super) keep_first: usize,
    /// The most events.
    pub(super) max_size: usize,
}

impl Bounds {
    /// How many events are to stay; nothing: all of them.
    pub(super) fn target(self, view: &View) -> Option<usize> {
        let is_due = view.len() > self.max_size || view.is_condensation_requested();
        is_due.then(|| view.len().min(self.max_size) / 2)
    }

    /// What is to be forgotten between the first events and the latest; nothing: it is not time, or nothing is won.
    pub(super) fn due(self, view: &View, summary: Summary) -> Option<Vec<&Shown>> {
        let stays_before = self.keep_first + usize::from(summary == Summary::Written);
        let keep_last = self.target(view)?.saturating_sub(stays_before);
        let forgotten = between(view, self.keep_first, keep_last);
        let is_added = summary == Summary::Written && !view.has_summary();
        (forgotten.len() > usize::from(is_added)).then_some(forgotten)
    }
}

/// Whether a summary is written of what is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Summary {
    Written,
    None,
}

/// What may be forgotten between the first `keep_first` and the last `keep_last` events, as a question to an event. What
/// begins among the first stays, and what begins between them is forgotten whole, but for the latest.
pub(super) fn is_between(
    view: &View,
    keep_first: usize,
    keep_last: usize,
) -> impl Fn(&Shown) -> bool + use<> {
    // Ids grow along the view, but for the summary's.
    let begins = |index| {
        let mut rest = view.shown().iter().skip(index).filter(|shown| shown.standing != Standing::Summary);
        rest.next().map_or(view.end(), |shown| shown.event.id)
    };
    let between = begins(keep_first)..begins(view.len().saturating_sub(keep_last));
    let latest = view.latest().map(|shown| shown.group);
    move |shown| {
        shown.standing == Standing::Passing && Some(shown.group) != latest && between.contains(&shown.group)
    }
}

/// The events of which that is true.
pub(super) fn between(view: &View, keep_first: usize, keep_last: usize) -> Vec<&Shown> {
    let is_between = is_between(view, keep_first, keep_last);
    view.shown().iter().filter(|shown| is_between(shown)).collect()
}

/// The condensation that forgets events of a view, given in its order; with what it took.
pub(super) fn forget(
    view: &View,
    forgotten: &[&Shown],
    summary: Option<String>,
    call: Option<ModelCall>,
) -> CondenserOutput {
    let mut condensation = CondensationAction::default();
    if let (Some(first), Some(last)) = (forgotten.first(), forgotten.last()) {
        let (first, last) = (first.event.id, last.event.id);
        if summary.is_some() {
            let stays = view.shown().iter().filter(|shown| shown.standing != Standing::Summary);
            condensation.summary_offset =
                Some(number(stays.take_while(|shown| shown.event.id < first).count() as u64));
        }
        let in_range = view
            .shown()
            .iter()
            .filter(|shown| shown.standing == Standing::Passing && (first..=last).contains(&shown.event.id));
        if in_range.count() == forgotten.len() {
            condensation.forgotten_events_start_id = Some(number(first.0));
            condensation.forgotten_events_end_id = Some(number(last.0));
        } else {
            let ids = forgotten.iter().map(|shown| number(shown.event.id.0));
            condensation.forgotten_event_ids = Some(ids.collect());
        }
    }
    condensation.summary = summary;
    CondenserOutput::Condensation(Box::new(AgentStep { call, ..AgentStep::new(Action::from(condensation)) }))
}

/// As V0 writes ids and offsets.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
