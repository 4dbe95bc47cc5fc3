//! The part of a log that one agent's model sees. Events of other agents are excluded.
//!
//! A view is a fold of the log, like a conversation's state. It applies the log's condensations:
//! forgotten events are removed, and the summary is inserted at its offset. Regardless of a
//! condensation, a call and its result are removed only together, and the prompt and the task are
//! never removed, because providers reject a request without them.
//!
//! Used by condensers and agents; makes no decisions.

#[cfg(test)]
pub(crate) mod logs;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use protocol::action::CondensationAction;
use protocol::observation::CondenseObservation;
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind};

use crate::llm::{AssistantMessage, Tool, ToolCall};
use crate::memory::RecallHistory;
use crate::replayed_user;

/// The events that a model may see, in order. Copy-on-write, so that clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct View {
    entries: Arc<Vec<ViewEntry>>,
    has_task: bool,
    is_condensation_requested: bool,
    has_response: bool,
    announcements: usize,
    offered_tools: Arc<Vec<Tool>>,
    replayable_count: usize,
    unrecalled_message: Option<Arc<Event>>,
    recalled: RecallHistory,
    /// Events that were removed only because of their group. V0 keeps them, and counts them in the
    /// offset of a summary.
    removed_with_group: BTreeSet<EventId>,
    /// The delegate action of the agent. `None` for the conversation's own agent.
    agent: Option<EventId>,
    end: EventId,
}

/// An event of a view.
#[derive(Debug, Clone)]
pub(crate) struct ViewEntry {
    pub(crate) event: Arc<Event>,
    /// Identifies the group of events that are removed only together, by its first event: the calls
    /// of a response with their results, or an action with its observation.
    pub(crate) group: EventId,
    pub(crate) retention: Retention,
    /// Replaces the text of the event.
    pub(crate) replacement: Option<Arc<str>>,
}

/// When an event may be removed from a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retention {
    /// Never: the prompt, and the user's first message.
    Pinned,
    /// Once another summary replaces it.
    Summary,
    /// At any time.
    Forgettable,
}

impl View {
    /// Creates a view of a whole log.
    pub fn from_events(events: Vec<Arc<Event>>) -> Self {
        let mut view = Self::default();
        view.update(&events);
        view
    }

    /// Creates an empty view for the agent of a delegate action, or for the conversation's own
    /// agent.
    pub fn for_agent(agent: Option<EventId>) -> Self {
        Self {
            agent,
            ..Self::default()
        }
    }

    /// Adds the events of the log that are new since the last update.
    pub fn update(&mut self, log: &[Arc<Event>]) {
        let known = log.partition_point(|event| event.id < self.end);
        for event in log.iter().skip(known) {
            self.end = event.id.next();
            if event.delegation == self.agent {
                self.push(event);
            }
        }
    }

    /// Returns the id that follows the last event seen.
    pub fn end(&self) -> EventId {
        self.end
    }

    /// Returns the tools that the model gets in addition to the agent's own, according to the
    /// latest event about them.
    pub fn offered_tools(&self) -> &[Tool] {
        &self.offered_tools
    }

    /// Whether the model has responded since the latest condensation, or since the start.
    pub(crate) fn has_response(&self) -> bool {
        self.has_response
    }

    /// Returns the number of events about tools and other notices of the environment since the
    /// model's latest response.
    pub(crate) fn announcements(&self) -> usize {
        self.announcements
    }

    /// Returns the user's latest message, unless a recall or an action of the agent followed it.
    pub(crate) fn unrecalled_message(&self) -> Option<&str> {
        match &self.unrecalled_message.as_deref()?.body {
            EventBody::Action(Action::Message(message)) => Some(&message.content),
            _ => None,
        }
    }

    /// Returns what has been recalled so far.
    pub(crate) fn recalled(&self) -> &RecallHistory {
        &self.recalled
    }

    /// Returns the notices of the environment in the view.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &Event> {
        self.events().filter(|event| is_notice(event))
    }

    /// Returns the events of the view in order, with the summary in the place of the forgotten
    /// events.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.entries.iter().map(|entry| &*entry.event)
    }

    /// Returns the number of events, including the summary.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the view has no events.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a condensation is requested and has not happened yet.
    pub fn is_condensation_requested(&self) -> bool {
        self.is_condensation_requested
    }

    /// Returns the next tool call of the latest response that has no event yet, if the latest event
    /// belongs to that response. The agent makes the calls of a response one after another; the log
    /// records its progress, also across a crash. Of several calls with the same id only the first
    /// is made.
    pub fn pending_call(&self) -> Option<(ToolCall, ToolCallMetadata)> {
        let latest = self.latest()?;
        // The agent has to see the rejection first.
        if matches!(
            latest.event.body,
            EventBody::Observation(Observation {
                kind: ObservationKind::UserRejected(_),
                ..
            })
        ) {
            return None;
        }
        let metadata = latest.event.tool_call_metadata.as_ref()?;
        let group = self
            .entries
            .iter()
            .rev()
            .take_while(|entry| entry.event.id >= latest.group);
        let made: HashSet<&str> = group
            .filter(|entry| entry.group == latest.group && entry.event.cause.is_none())
            .filter_map(|entry| {
                Some(
                    entry
                        .event
                        .tool_call_metadata
                        .as_ref()?
                        .tool_call_id
                        .as_str(),
                )
            })
            .collect();
        let calls = AssistantMessage::from(&metadata.model_response).tool_calls;
        let call = calls
            .into_iter()
            .find(|call| !made.contains(call.id.as_str()))?;
        let metadata = ToolCallMetadata {
            function_name: call.name.clone(),
            tool_call_id: call.id.clone(),
            ..metadata.clone()
        };
        Some((call, metadata))
    }

    /// Returns the entries of the view.
    pub(crate) fn entries(&self) -> &[ViewEntry] {
        &self.entries
    }

    /// Returns the entries of the view, to replace some texts.
    pub(crate) fn entries_mut(&mut self) -> &mut [ViewEntry] {
        Arc::make_mut(&mut self.entries).as_mut_slice()
    }

    /// Returns the number of replayable actions of the agent, including forgotten ones.
    pub(crate) fn replayable_count(&self) -> usize {
        self.replayable_count
    }

    /// Returns the latest entry, except for the summary and for notices, which may occur between
    /// two calls of a response.
    pub(crate) fn latest(&self) -> Option<&ViewEntry> {
        self.entries
            .iter()
            .rfind(|entry| entry.retention != Retention::Summary && !is_notice(&entry.event))
    }

    /// Returns the number of events before one as V0 counts them, without the summary.
    pub(crate) fn offset_of(&self, event: EventId) -> usize {
        let others = self
            .entries
            .iter()
            .filter(|entry| entry.retention != Retention::Summary);
        let count = others.take_while(|entry| entry.event.id < event).count();
        count + self.removed_with_group.range(..event).count()
    }

    /// Returns the summary of the forgotten events. `None` if there is none yet.
    pub(crate) fn summary(&self) -> Option<&ViewEntry> {
        self.entries
            .iter()
            .find(|entry| entry.retention == Retention::Summary)
    }

    /// Removes the selected entries, except those that must stay.
    pub(crate) fn remove(&mut self, is_selected: impl Fn(&ViewEntry) -> bool) {
        let is_kept =
            |entry: &&ViewEntry| entry.retention != Retention::Forgettable || !is_selected(entry);
        self.entries = Arc::new(self.entries.iter().filter(is_kept).cloned().collect());
    }

    fn push(&mut self, event: &Arc<Event>) {
        self.replayable_count += usize::from(replayed_user::is_replayable(event));
        let is_message = matches!(event.body, EventBody::Action(Action::Message(_)));
        if event.tool_call_metadata.is_some() || (is_message && event.source == EventSource::Agent)
        {
            self.has_response = true;
            self.announcements = 0;
        }
        match (&event.body, event.source) {
            (EventBody::Action(Action::Message(_)), EventSource::User) => {
                self.unrecalled_message = Some(Arc::clone(event));
            }
            (EventBody::Action(_), EventSource::Agent)
            | (EventBody::Action(Action::Recall(_)), _) => {
                self.unrecalled_message = None;
            }
            (EventBody::Observation(observation), _) => self.recalled.apply(observation),
            _ => {}
        }
        match &event.body {
            // The tools are sent separately from the messages.
            EventBody::Action(Action::System(system))
                if event.source == EventSource::Environment =>
            {
                self.announcements += 1;
                self.offered_tools = Arc::new(Tool::all_from_stored(system).collect());
            }
            EventBody::Action(Action::Condensation(condensation)) => {
                self.condense(event, condensation);
            }
            EventBody::Action(Action::CondensationRequest(_)) => {
                self.is_condensation_requested = true;
                // A request by a tool call is part of the response.
                if event.tool_call_metadata.is_some() {
                    self.add_entry(event);
                }
            }
            body if is_visible(body) => {
                self.announcements += usize::from(is_notice(event));
                self.add_entry(event);
            }
            _ => {}
        }
    }

    fn add_entry(&mut self, event: &Arc<Event>) {
        let retention = match (&event.body, event.source) {
            (EventBody::Action(Action::System(_)), _) => Retention::Pinned,
            (EventBody::Action(Action::Message(_)), EventSource::User) if !self.has_task => {
                self.has_task = true;
                Retention::Pinned
            }
            _ => Retention::Forgettable,
        };
        let group = self.find_group(event);
        let entry = ViewEntry {
            event: Arc::clone(event),
            group,
            retention,
            replacement: None,
        };
        Arc::make_mut(&mut self.entries).push(entry);
    }

    /// Finds the group that an event continues. An event that continues none starts a group.
    fn find_group(&self, event: &Event) -> EventId {
        let by_cause = event.cause.and_then(|cause| {
            let mut since = self
                .entries
                .iter()
                .rev()
                .take_while(|entry| entry.event.id >= cause);
            since.find(|entry| entry.event.id == cause)
        });
        let by_response = || {
            // Some servers repeat their responses, with their ids.
            if event.events_seen.is_some() {
                return None;
            }
            let response = &event.tool_call_metadata.as_ref()?.model_response;
            let latest = self
                .entries
                .iter()
                .rfind(|entry| entry.event.tool_call_metadata.is_some())?;
            let metadata = latest.event.tool_call_metadata.as_ref()?;
            (metadata.model_response == *response).then_some(latest)
        };
        by_cause
            .or_else(by_response)
            .map_or(event.id, |entry| entry.group)
    }

    /// Removes the events that a condensation selects, with their groups.
    fn condense(&mut self, event: &Event, condensation: &CondensationAction) {
        self.is_condensation_requested = false;
        self.has_response = false;
        let is_selected = selection(condensation);
        let groups: HashSet<EventId> = self
            .entries
            .iter()
            .filter(|entry| {
                entry.retention == Retention::Forgettable && is_selected(entry.event.id)
            })
            .map(|entry| entry.group)
            .collect();
        let offset = condensation
            .summary_offset
            .map(|offset| usize::try_from(offset).unwrap_or(0));
        self.removed_with_group.retain(|event| !is_selected(*event));
        let with_group = self.entries.iter().filter(|entry| {
            entry.retention == Retention::Forgettable
                && groups.contains(&entry.group)
                && !is_selected(entry.event.id)
        });
        self.removed_with_group
            .extend(with_group.map(|entry| entry.event.id));
        self.remove(|entry| groups.contains(&entry.group));
        if let (Some(text), Some(offset)) = (&condensation.summary, offset) {
            let summary = Observation::new(text.clone(), CondenseObservation {});
            let summary = Event::new(
                event.id,
                event.timestamp.clone(),
                EventSource::Agent,
                summary,
            );
            self.insert_summary(summary, offset);
        }
    }

    /// Replaces the summary. Inserts the new one after `offset` other events as V0 counts them, but
    /// not before the task.
    fn insert_summary(&mut self, summary: Event, offset: usize) {
        let entries = Arc::make_mut(&mut self.entries);
        entries.retain(|entry| entry.retention != Retention::Summary);
        let is_counted_before = |(index, entry): &(usize, &ViewEntry)| {
            index + self.removed_with_group.range(..entry.event.id).count() < offset
        };
        let offset = entries
            .iter()
            .enumerate()
            .take_while(is_counted_before)
            .count();
        let pinned = entries
            .iter()
            .rposition(|entry| entry.retention == Retention::Pinned);
        let after_pinned = pinned.map_or(0, |last| last + 1);
        let index = offset.max(after_pinned).min(entries.len());
        let (group, retention) = (summary.id, Retention::Summary);
        entries.insert(
            index,
            ViewEntry {
                event: Arc::new(summary),
                group,
                retention,
                replacement: None,
            },
        );
    }
}

/// Returns the predicate of the events that a condensation selects. A range whose end precedes its
/// start selects none.
fn selection(condensation: &CondensationAction) -> impl Fn(EventId) -> bool {
    let id = |id: i64| u64::try_from(id).ok();
    let ids = condensation.forgotten_event_ids.as_ref();
    let ids: Option<HashSet<u64>> = ids.map(|ids| ids.iter().copied().filter_map(id).collect());
    let first = condensation
        .forgotten_events_start_id
        .map(|first| id(first).unwrap_or(0));
    let range = first.zip(condensation.forgotten_events_end_id.and_then(id));
    move |event| match (&ids, range) {
        (Some(ids), _) => ids.contains(&event.0),
        (None, Some((first, last))) => (first..=last).contains(&event.0),
        (None, None) => false,
    }
}

/// Whether an event is a notice of the environment without an action, such as a failed tool server.
fn is_notice(event: &Event) -> bool {
    matches!(
        (event.source, &event.body),
        (EventSource::Environment, EventBody::Observation(_))
    ) && event.cause.is_none()
}

/// Whether a body is visible to the model.
fn is_visible(body: &EventBody) -> bool {
    match body {
        EventBody::Action(action) => {
            !matches!(action, Action::ChangeAgentState(_) | Action::Null(_))
        }
        EventBody::Observation(observation) => !matches!(
            observation.kind,
            ObservationKind::AgentStateChanged(_) | ObservationKind::Null(_)
        ),
        EventBody::Record(_) => false,
    }
}
