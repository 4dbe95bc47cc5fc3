//! Logs for tests: what an agent, a user and a sandbox may have said, in the order in which they do.

use proptest::prelude::*;
use protocol::action::{
    CondensationAction, CondensationRequestAction, FinishAction, MessageAction, RunAction, SystemAction,
};
use protocol::observation::{BrowseObservation, RunObservation};
use protocol::{AgentState, EventId};
use serde_json::json;

use super::*;
use crate::llm::{ChatMessage, MessagePart};
use crate::testing::timestamp;

/// A log in the making.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<Arc<Event>>,
    responses: usize,
}

impl Log {
    /// A prompt and a task.
    pub(crate) fn begun() -> Self {
        let mut log = Self::default();
        let content = "the prompt".into();
        let system = SystemAction { content, tools: None, openhands_version: None, agent_class: None };
        log.push(EventSource::Agent, Action::from(system));
        log.says("the task");
        log
    }

    /// So many steps of one call each.
    pub(crate) fn of_steps(steps: usize) -> Self {
        let mut log = Self::begun();
        (0..steps).for_each(|_| log.responds(1, 1));
        log
    }

    pub(crate) fn push(&mut self, source: EventSource, body: impl Into<EventBody>) -> EventId {
        self.add(source, body.into(), None, None)
    }

    pub(crate) fn says(&mut self, text: &str) {
        let message = MessageAction { content: text.into(), ..Default::default() };
        self.push(EventSource::User, Action::from(message));
    }

    /// A response with `calls` calls, of which the first `made` are made.
    pub(crate) fn responds(&mut self, calls: usize, made: usize) {
        self.responses += 1;
        let number = self.responses;
        for call in 0..made {
            let id = format!("call-{number}-{call}");
            let metadata = metadata(number, calls, &id);
            let run = RunAction { command: format!("command {number}"), ..Default::default() };
            let cause = self.add(EventSource::Agent, Action::from(run).into(), None, Some(metadata.clone()));
            let ran = Observation::new(format!("output of {id}"), RunObservation::default());
            self.add(EventSource::Agent, ran.into(), Some(cause), Some(metadata));
        }
    }

    /// An action and its observation that no model called for.
    pub(crate) fn browses(&mut self, url: &str) {
        let cause = self.push(EventSource::Agent, Action::from(FinishAction::default()));
        let page = BrowseObservation { url: url.into(), ..Default::default() };
        let page = Observation::new(format!("the page {url}"), Box::new(page));
        self.add(EventSource::Agent, page.into(), Some(cause), None);
    }

    pub(crate) fn asks_for_condensation(&mut self) {
        self.push(EventSource::Agent, Action::from(CondensationRequestAction {}));
    }

    pub(crate) fn condenses(&mut self, condensation: CondensationAction) {
        self.push(EventSource::Agent, Action::from(condensation));
    }

    pub(crate) fn view(&self) -> View {
        View::from_events(self.events.clone())
    }

    fn add(
        &mut self,
        source: EventSource,
        body: EventBody,
        cause: Option<EventId>,
        metadata: Option<ToolCallMetadata>,
    ) -> EventId {
        let id = EventId(self.events.len() as u64);
        let mut event = Event::new(id, timestamp(), source, body);
        event.cause = cause;
        event.tool_call_metadata = metadata;
        self.events.push(Arc::new(event));
        id
    }
}

fn metadata(number: usize, calls: usize, id: &str) -> ToolCallMetadata {
    let calls: Vec<_> = (0..calls)
        .map(|call| {
            let function = json!({"name": "execute_bash", "arguments": "{\"command\": \"ls\"}"});
            json!({"id": format!("call-{number}-{call}"), "type": "function", "function": function})
        })
        .collect();
    let message = json!({"role": "assistant", "content": format!("thought {number}"), "tool_calls": calls});
    ToolCallMetadata {
        function_name: "execute_bash".into(),
        tool_call_id: id.into(),
        total_calls_in_response: calls.len() as u64,
        model_response: (&json!({"id": format!("r{number}"), "choices": [{"message": message}]})).into(),
    }
}

/// What may come next in a log.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    Says,
    Responds { calls: usize, unmade: usize },
    Browses,
    ChangesState,
    Asks,
    Condenses(CondensationAction),
}

impl Log {
    pub(crate) fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Says => self.says("more"),
            Turn::Responds { calls, unmade } => self.responds(calls, calls.saturating_sub(unmade).max(1)),
            Turn::Browses => self.browses("http://x/"),
            Turn::ChangesState => {
                let agent_state = AgentState::Running;
                let changed = protocol::observation::AgentStateChangedObservation {
                    agent_state,
                    reason: String::new(),
                };
                self.push(EventSource::Environment, Observation::without_content(changed));
            }
            Turn::Asks => self.asks_for_condensation(),
            Turn::Condenses(condensation) => self.condenses(condensation),
        }
    }
}

/// A condensation of any kind, most of them wrong.
pub(crate) fn any_condensation() -> impl Strategy<Value = CondensationAction> {
    let id = || prop_oneof![6 => -3..150_i64, 1 => any::<i64>()];
    let ids = proptest::option::of(proptest::collection::vec(id(), 0..20));
    let end = || proptest::option::of(id());
    let summary = proptest::option::of(Just("a summary".to_owned()));
    (ids, end(), end(), summary, end()).prop_map(|(ids, first, last, summary, offset)| CondensationAction {
        forgotten_event_ids: ids,
        forgotten_events_start_id: first,
        forgotten_events_end_id: last,
        summary,
        summary_offset: offset,
    })
}

/// A log of any kind. With `condensations`, other's and hostile ones are in it.
pub(crate) fn any_log(condensations: u32) -> impl Strategy<Value = Log> {
    let turn = prop_oneof![
        2 => Just(Turn::Says),
        8 => (1..4_usize, 0..2_usize).prop_map(|(calls, unmade)| Turn::Responds { calls, unmade }),
        2 => Just(Turn::Browses),
        1 => Just(Turn::ChangesState),
        1 => Just(Turn::Asks),
        condensations => any_condensation().prop_map(Turn::Condenses),
    ];
    (proptest::collection::vec(turn, 0..40), any::<bool>()).prop_map(|(turns, is_begun)| {
        let mut log = if is_begun { Log::begun() } else { Log::default() };
        turns.into_iter().for_each(|turn| log.take(turn));
        log
    })
}

/// Panics unless every call that the model is told has exactly one result after it, and no result is told without its
/// call.
pub(crate) fn assert_paired(messages: &[ChatMessage]) {
    let mut expected: Vec<String> = Vec::new();
    for message in messages {
        match message {
            ChatMessage::ToolResult { call_id, .. } => {
                assert!(!expected.is_empty(), "a result without its call: {call_id}");
                assert_eq!(expected.remove(0), *call_id);
            }
            other => {
                assert!(expected.is_empty(), "calls without results: {expected:?}");
                if let ChatMessage::Assistant(message) = other {
                    let calls = message.get("tool_calls").and_then(|calls| calls.as_array());
                    let ids = calls.into_iter().flatten().map(|call| call["id"].as_str().unwrap().to_owned());
                    expected = ids.collect();
                }
            }
        }
    }
    assert!(expected.is_empty(), "calls without results: {expected:?}");
}

/// The texts of messages, for comparing.
pub(crate) fn texts(messages: &[ChatMessage]) -> Vec<String> {
    let text = |parts: &[MessagePart]| match parts {
        [MessagePart::Text(text)] => text.clone(),
        other => panic!("one text, not {other:?}"),
    };
    messages
        .iter()
        .map(|message| match message {
            ChatMessage::System(text) => text.clone(),
            ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => text(parts),
            ChatMessage::Assistant(message) => message["content"].as_str().unwrap().to_owned(),
        })
        .collect()
}
