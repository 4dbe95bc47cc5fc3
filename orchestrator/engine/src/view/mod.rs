//! What of the log a model gets to see: of what its agent did and heard, not of other agents' work.
//!
//! A view is the fold of a log's events, as a conversation's state is. Condensations of the log take effect in it: what
//! they forget is not shown, and their summary stands where they say. Whatever a condensation says, calls and their
//! results are shown together or not at all, and the prompt and the task stay: without them a model cannot be asked.
//!
//! Below condensers and agents: it decides on nothing.

#[cfg(test)]
pub(crate) mod logs;
mod tell;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use protocol::action::CondensationAction;
use protocol::observation::CondenseObservation;
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, Event, EventBody, EventId, EventSource, Observation, ObservationKind};

use crate::llm::{AssistantMessage, Tool, ToolCall};
use crate::memory::Recalled;
use crate::replay;

/// The events that a model may see, in order. A copy costs nothing until it is changed.
#[derive(Debug, Clone)]
pub struct View {
    shown: Arc<Vec<Shown>>,
    has_task: bool,
    is_condensation_requested: bool,
    offered: Arc<Vec<Tool>>,
    replayable: usize,
    unrecalled_message: Option<Arc<Event>>,
    recalled: Recalled,
    /// The delegate action whose agent it is of; nothing: the conversation's own.
    agent: Option<EventId>,
    end: EventId,
}

/// An event that is shown.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) event: Arc<Event>,
    /// The first of the events that are shown together or not at all: a response's calls and what came of them, or an
    /// action and its observation.
    pub(crate) group: EventId,
    pub(crate) standing: Standing,
    /// What is told in the place of its text.
    pub(crate) instead: Option<Arc<str>>,
}

/// Whether an event can be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The prompt, and the user's first message: always shown.
    Pinned,
    /// Stands for what was forgotten, until another summary does.
    Summary,
    /// Shown until it is forgotten.
    Passing,
}

impl Default for View {
    fn default() -> Self {
        Self {
            shown: Arc::default(),
            has_task: false,
            is_condensation_requested: false,
            offered: Arc::default(),
            replayable: 0,
            unrecalled_message: None,
            recalled: Recalled::default(),
            agent: None,
            end: EventId::FIRST,
        }
    }
}

impl View {
    /// A view of the whole log.
    pub fn from_events(events: Vec<Arc<Event>>) -> Self {
        let mut view = Self::default();
        view.update(&events);
        view
    }

    /// A view of what is an agent's own, before any of it: the agent of a delegate action, or the conversation's.
    pub fn for_agent(agent: Option<EventId>) -> Self {
        Self { agent, ..Self::default() }
    }

    /// Goes on to the end of the log that it is a view of. What it has taken in before it does not look at.
    pub fn update(&mut self, log: &[Arc<Event>]) {
        let taken_in = log.partition_point(|event| event.id < self.end);
        for event in log.iter().skip(taken_in) {
            self.end = event.id.next();
            if event.delegation == self.agent {
                self.push(event);
            }
        }
    }

    /// The first event that is not in the view.
    pub fn end(&self) -> EventId {
        self.end
    }

    /// The tools that tool servers offer, as the log was told last.
    pub fn offered_tools(&self) -> &[Tool] {
        &self.offered
    }

    /// The user's latest message, if nothing has been done about it yet.
    pub(crate) fn unrecalled_message(&self) -> Option<&str> {
        match &self.unrecalled_message.as_deref()?.body {
            EventBody::Action(Action::Message(message)) => Some(&message.content),
            _ => None,
        }
    }

    /// What the agent was told beside what the user said.
    pub(crate) fn recalled(&self) -> &Recalled {
        &self.recalled
    }

    /// What the environment told by itself and is shown.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &Event> {
        self.events().filter(|event| is_notice(event))
    }

    /// The events that are shown, in order; a summary stands where what it sums up was forgotten.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.shown.iter().map(|shown| &*shown.event)
    }

    /// How many events are shown; the summary is one.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    /// Whether nothing is shown.
    pub fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Whether a condensation was asked for and has not come since.
    pub fn is_condensation_requested(&self) -> bool {
        self.is_condensation_requested
    }

    /// The next call of the latest response that has not become an event yet, if the latest event belongs to that
    /// response: the agent makes a response's calls one after another, and this is where it stands, also after a
    /// crash. Of calls that share an id only the first is made.
    pub fn pending_call(&self) -> Option<(ToolCall, ToolCallMetadata)> {
        let latest = self.latest()?;
        // The agent hears first why.
        if matches!(&latest.event.body, EventBody::Observation(observation)
            if matches!(observation.kind, ObservationKind::UserRejected(_)))
        {
            return None;
        }
        let metadata = latest.event.tool_call_metadata.as_ref()?;
        let group = self.shown.iter().rev().take_while(|shown| shown.event.id >= latest.group);
        let made: HashSet<&str> = group
            .filter(|shown| shown.group == latest.group && shown.event.cause.is_none())
            .filter_map(|shown| Some(shown.event.tool_call_metadata.as_ref()?.tool_call_id.as_str()))
            .collect();
        let calls = AssistantMessage::from(&metadata.model_response).tool_calls();
        let call = calls.into_iter().find(|call| !made.contains(call.id.as_str()))?;
        let metadata = ToolCallMetadata {
            function_name: call.name.clone(),
            tool_call_id: call.id.clone(),
            ..metadata.clone()
        };
        Some((call, metadata))
    }

    /// What is shown.
    pub(crate) fn shown(&self) -> &[Shown] {
        &self.shown
    }

    /// What is shown, to tell something in the place of some of it.
    pub(crate) fn shown_mut(&mut self) -> &mut [Shown] {
        Arc::make_mut(&mut self.shown).as_mut_slice()
    }

    /// How many actions an agent has decided on that a replay does again, also those that are shown no longer.
    pub(crate) fn replayable(&self) -> usize {
        self.replayable
    }

    /// The latest event of the exchange: a summary is none of its own, and what the environment tells by itself may come
    /// between two calls of a response.
    pub(crate) fn latest(&self) -> Option<&Shown> {
        self.shown.iter().rfind(|shown| shown.standing != Standing::Summary && !is_notice(&shown.event))
    }

    /// Whether a summary is shown.
    pub(crate) fn has_summary(&self) -> bool {
        self.shown.iter().any(|shown| shown.standing == Standing::Summary)
    }

    /// Shows no longer what can be forgotten and is named.
    pub(crate) fn hide(&mut self, is_named: impl Fn(&Shown) -> bool) {
        let stays = |shown: &&Shown| shown.standing != Standing::Passing || !is_named(shown);
        self.shown = Arc::new(self.shown.iter().filter(stays).cloned().collect());
    }

    fn push(&mut self, event: &Arc<Event>) {
        self.replayable += usize::from(replay::is_replayable(event));
        match (&event.body, event.source) {
            (EventBody::Action(Action::Message(_)), EventSource::User) => {
                self.unrecalled_message = Some(Arc::clone(event));
            }
            (EventBody::Action(_), EventSource::Agent) | (EventBody::Action(Action::Recall(_)), _) => {
                self.unrecalled_message = None;
            }
            (EventBody::Observation(observation), _) => self.recalled.apply(observation),
            _ => {}
        }
        match &event.body {
            // The tools alone: they are told beside the messages.
            EventBody::Action(Action::System(system)) if event.source == EventSource::Environment => {
                let tools = system.tools.iter().flatten().filter_map(Tool::from_openai);
                self.offered = Arc::new(tools.collect());
            }
            EventBody::Action(Action::Condensation(condensation)) => self.condense(event, condensation),
            EventBody::Action(Action::CondensationRequest(_)) => {
                self.is_condensation_requested = true;
                // One that the model called for is part of its response.
                if event.tool_call_metadata.is_some() {
                    self.show(event);
                }
            }
            body if is_turn(body) => self.show(event),
            _ => {}
        }
    }

    fn show(&mut self, event: &Arc<Event>) {
        let standing = match (&event.body, event.source) {
            (EventBody::Action(Action::System(_)), _) => Standing::Pinned,
            (EventBody::Action(Action::Message(_)), EventSource::User) if !self.has_task => {
                self.has_task = true;
                Standing::Pinned
            }
            _ => Standing::Passing,
        };
        let group = self.group_of(event);
        let shown = Shown { event: Arc::clone(event), group, standing, instead: None };
        Arc::make_mut(&mut self.shown).push(shown);
    }

    /// The group that an event joins; one of its own if there is none.
    fn group_of(&self, event: &Event) -> EventId {
        let by_cause = event.cause.and_then(|cause| {
            let since = self.shown.iter().rev().take_while(|shown| shown.event.id >= cause);
            since.into_iter().find(|shown| shown.event.id == cause)
        });
        let by_response = || {
            let response = &event.tool_call_metadata.as_ref()?.model_response;
            let mut responses = self.shown.iter().rev().filter_map(|shown| {
                shown.event.tool_call_metadata.as_ref().map(|metadata| (shown, &metadata.model_response))
            });
            responses.next().filter(|(_, latest)| *latest == response).map(|(shown, _)| shown)
        };
        by_cause.or_else(by_response).map_or(event.id, |shown| shown.group)
    }

    /// Forgets what a condensation names of the events before it, and whatever must not be shown without that.
    fn condense(&mut self, event: &Event, condensation: &CondensationAction) {
        self.is_condensation_requested = false;
        let is_named = named(condensation);
        let groups: HashSet<EventId> = self
            .shown
            .iter()
            .filter(|shown| shown.standing == Standing::Passing && is_named(shown.event.id))
            .map(|shown| shown.group)
            .collect();
        self.hide(|shown| groups.contains(&shown.group));
        if let (Some(text), Some(offset)) = (&condensation.summary, condensation.summary_offset) {
            let told = Observation::new(text.clone(), CondenseObservation {});
            let told = Event::new(event.id, event.timestamp.clone(), EventSource::Agent, told);
            self.sum_up(told, usize::try_from(offset).unwrap_or(0));
        }
    }

    /// Shows a summary in the place of the one before: after `offset` other events, and never before the task.
    fn sum_up(&mut self, summary: Event, offset: usize) {
        let shown = Arc::make_mut(&mut self.shown);
        shown.retain(|shown| shown.standing != Standing::Summary);
        let pinned = shown.iter().rposition(|shown| shown.standing == Standing::Pinned);
        let after_pinned = pinned.map_or(0, |last| last + 1);
        let place = offset.max(after_pinned).min(shown.len());
        let (group, standing) = (summary.id, Standing::Summary);
        shown.insert(place, Shown { event: Arc::new(summary), group, standing, instead: None });
    }
}

/// Which events a condensation names. A range that ends before it begins names none.
fn named(condensation: &CondensationAction) -> impl Fn(EventId) -> bool {
    let id = |id: i64| u64::try_from(id).ok();
    let ids: Option<HashSet<u64>> = condensation
        .forgotten_event_ids
        .as_ref()
        .map(|ids| ids.iter().filter_map(|number| id(*number)).collect());
    let first = condensation.forgotten_events_start_id.map(|first| id(first).unwrap_or(0));
    let range = first.zip(condensation.forgotten_events_end_id.and_then(id));
    move |event| match (&ids, range) {
        (Some(ids), _) => ids.contains(&event.0),
        (None, Some((first, last))) => (first..=last).contains(&event.0),
        (None, None) => false,
    }
}

/// Whether the environment tells something that nobody asked for: that a tool server failed.
fn is_notice(event: &Event) -> bool {
    matches!((event.source, &event.body), (EventSource::Environment, EventBody::Observation(_)))
        && event.cause.is_none()
}

/// Whether a body is part of the exchange between agent, user and sandbox.
fn is_turn(body: &EventBody) -> bool {
    match body {
        EventBody::Action(action) => !matches!(action, Action::ChangeAgentState(_) | Action::Null(_)),
        EventBody::Observation(observation) => {
            !matches!(observation.kind, ObservationKind::AgentStateChanged(_) | ObservationKind::Null(_))
        }
        EventBody::Record(_) => false,
    }
}
