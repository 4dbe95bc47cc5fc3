//! Builds logs for tests.

use proptest::prelude::*;
use protocol::action::{
    CondensationAction, CondensationRequestAction, FinishAction, MessageAction, RunAction,
    SystemAction,
};
use protocol::observation::{BrowseObservation, RunObservation};
use protocol::{AgentState, EventId};
use serde_json::json;

use super::*;
use crate::llm::{ChatMessage, MessagePart};
use crate::testing::timestamp;

/// Builds a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogBuilder {
    pub(crate) events: Vec<Arc<Event>>,
    responses: usize,
}

impl LogBuilder {
    /// Starts with a prompt and a task.
    pub(crate) fn with_task() -> Self {
        let mut log = Self::default();
        let system = SystemAction {
            content: "the prompt".into(),
            ..Default::default()
        };
        log.push(EventSource::Agent, Action::from(system));
        log.user_message("the task");
        log
    }

    /// Starts with a prompt, a task and steps of one call each.
    pub(crate) fn with_steps(steps: usize) -> Self {
        let mut log = Self::with_task();
        (0..steps).for_each(|_| log.response(1, 1));
        log
    }

    pub(crate) fn push(&mut self, source: EventSource, body: impl Into<EventBody>) -> EventId {
        self.add(source, body.into(), None, None)
    }

    pub(crate) fn user_message(&mut self, text: &str) {
        let message = MessageAction {
            content: text.into(),
            ..Default::default()
        };
        self.push(EventSource::User, Action::from(message));
    }

    /// Adds a response with `calls` calls, of which the first `made` have events.
    pub(crate) fn response(&mut self, calls: usize, made: usize) {
        self.responses += 1;
        let number = self.responses;
        for call in 0..made {
            let id = format!("call-{number}-{call}");
            let metadata = metadata(number, calls, &id);
            let run = RunAction {
                command: format!("command {number}"),
                ..Default::default()
            };
            let seen = (call == 0).then_some(EventId(self.events.len() as u64));
            let cause = self.add(
                EventSource::Agent,
                Action::from(run).into(),
                None,
                Some(metadata.clone()),
            );
            if let Some(event) = self.events.last_mut() {
                Arc::make_mut(event).events_seen = seen;
            }
            let ran = Observation::new(format!("output of {id}"), RunObservation::default());
            self.add(EventSource::Agent, ran.into(), Some(cause), Some(metadata));
        }
    }

    /// Adds an action and its observation without a tool call.
    pub(crate) fn browse(&mut self, url: &str) {
        let cause = self.push(EventSource::Agent, Action::from(FinishAction::default()));
        let page = BrowseObservation {
            url: url.into(),
            ..Default::default()
        };
        let page = Observation::new(format!("the page {url}"), Box::new(page));
        self.add(EventSource::Agent, page.into(), Some(cause), None);
    }

    pub(crate) fn request_condensation(&mut self) {
        self.push(
            EventSource::Agent,
            Action::from(CondensationRequestAction {}),
        );
    }

    pub(crate) fn condense(&mut self, condensation: CondensationAction) {
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
    let message =
        json!({"role": "assistant", "content": format!("thought {number}"), "tool_calls": calls});
    ToolCallMetadata {
        function_name: "execute_bash".into(),
        tool_call_id: id.into(),
        total_calls_in_response: calls.len() as u64,
        model_response: (&json!({"id": format!("r{number}"), "choices": [{"message": message}]}))
            .into(),
    }
}

/// A random step of a log.
#[derive(Debug, Clone)]
pub(crate) enum LogTurn {
    UserMessage,
    Response { calls: usize, missing: usize },
    Browse,
    StateChange,
    CondensationRequest,
    Condensation(CondensationAction),
}

impl LogBuilder {
    pub(crate) fn apply(&mut self, turn: LogTurn) {
        match turn {
            LogTurn::UserMessage => self.user_message("more"),
            LogTurn::Response { calls, missing } => {
                self.response(calls, calls.saturating_sub(missing).max(1));
            }
            LogTurn::Browse => self.browse("http://x/"),
            LogTurn::StateChange => {
                let agent_state = AgentState::Running;
                let changed = protocol::observation::AgentStateChangedObservation {
                    agent_state,
                    reason: String::new(),
                };
                self.push(
                    EventSource::Environment,
                    Observation::without_content(changed),
                );
            }
            LogTurn::CondensationRequest => self.request_condensation(),
            LogTurn::Condensation(condensation) => self.condense(condensation),
        }
    }
}

/// Generates arbitrary condensations, most of them invalid.
pub(crate) fn any_condensation() -> impl Strategy<Value = CondensationAction> {
    let id = || prop_oneof![6 => -3..150_i64, 1 => any::<i64>()];
    let ids = proptest::option::of(proptest::collection::vec(id(), 0..20));
    let end = || proptest::option::of(id());
    let summary = proptest::option::of(Just("a summary".to_owned()));
    (ids, end(), end(), summary, end()).prop_map(|(ids, first, last, summary, offset)| {
        CondensationAction {
            forgotten_event_ids: ids,
            forgotten_events_start_id: first,
            forgotten_events_end_id: last,
            summary,
            summary_offset: offset,
        }
    })
}

/// Generates arbitrary logs, with arbitrary condensations of the given weight.
pub(crate) fn any_log(condensations: u32) -> impl Strategy<Value = LogBuilder> {
    let turn = prop_oneof![
        2 => Just(LogTurn::UserMessage),
        8 => (1..4_usize, 0..2_usize).prop_map(|(calls, missing)| LogTurn::Response { calls, missing }),
        2 => Just(LogTurn::Browse),
        1 => Just(LogTurn::StateChange),
        1 => Just(LogTurn::CondensationRequest),
        condensations => any_condensation().prop_map(LogTurn::Condensation),
    ];
    (proptest::collection::vec(turn, 0..40), any::<bool>()).prop_map(|(turns, has_task)| {
        let mut log = if has_task {
            LogBuilder::with_task()
        } else {
            LogBuilder::default()
        };
        turns.into_iter().for_each(|turn| log.apply(turn));
        log
    })
}

/// Panics unless exactly one result follows each call, and each result has a call.
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
                    expected = message
                        .tool_calls
                        .iter()
                        .map(|call| call.id.clone())
                        .collect();
                }
            }
        }
    }
    assert!(expected.is_empty(), "calls without results: {expected:?}");
}

/// Returns the texts of messages.
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
            ChatMessage::Assistant(message) => message.text.clone(),
        })
        .collect()
}
