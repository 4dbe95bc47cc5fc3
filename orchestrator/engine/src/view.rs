//! What of the log a model gets to see, turn by turn.
//!
//! Below condensers and agents: it pairs calls with their results and nothing more. A model's provider refuses a
//! call without a result, so every call of a response that is shown gets one.

use std::collections::HashSet;
use std::sync::Arc;

use protocol::action::RunAction;
use protocol::tool_call::ToolCallMetadata;
use protocol::{Action, Body, Event, EventId, EventSource, Observation, ObservationKind};

use crate::llm::{Message, ModelResponse, Part, ToolCall};

/// How much of the output of a failed step of a set-up is told: why it failed stands at the end.
const SETUP_CHARACTERS: usize = 2000;

/// The events that a model may see, in order.
#[derive(Debug, Clone, Default)]
pub struct View {
    events: Vec<Arc<Event>>,
}

impl View {
    /// A view of the whole log.
    pub fn whole(events: Vec<Arc<Event>>) -> Self {
        Self { events }
    }

    /// The first event that is not in the view.
    pub fn end(&self) -> EventId {
        self.events.last().map_or(EventId::FIRST, |event| event.id.next())
    }

    /// The next call of the latest response that has not become an event yet, if the latest event belongs to that
    /// response: the agent makes a response's calls one after another, and this is where it stands, also after a
    /// crash.
    pub fn unmade_call(&self) -> Option<(ToolCall, ToolCallMetadata)> {
        let latest = self.events.iter().rev().find(|event| is_turn(event))?;
        let metadata = latest.tool_call_metadata.as_ref()?;
        let calls = ModelResponse(metadata.model_response.clone()).tool_calls();
        let made = calls.iter().position(|call| call.id == metadata.tool_call_id)?;
        let call = calls.into_iter().nth(made + 1)?;
        let metadata = ToolCallMetadata {
            function_name: call.name.clone(),
            tool_call_id: call.id.clone(),
            ..metadata.clone()
        };
        Some((call, metadata))
    }

    /// The conversation as a model is told it.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut told = HashSet::new();
        for (index, event) in self.events.iter().enumerate() {
            match (&event.tool_call_metadata, &event.body) {
                (Some(metadata), _) => {
                    let response = ModelResponse(metadata.model_response.clone());
                    if told.insert(identity(&response)) {
                        self.tell_response(&response, index, &mut messages);
                    }
                }
                (None, Body::Action(action)) => messages.extend(tell_action(event.source, action)),
                (None, Body::Observation(observation)) => messages.extend(match self.setup_step(event) {
                    Some(step) => Some(tell_setup(step, observation)),
                    None => tell_unasked(observation),
                }),
                (None, Body::Record(_)) => {}
            }
        }
        messages
    }

    /// The step of the workspace's set-up that an observation is the end of.
    fn setup_step(&self, ended: &Event) -> Option<&RunAction> {
        let cause = ended.cause?;
        let event = self.events.iter().rev().find(|event| event.id == cause)?;
        match (event.source, &event.body) {
            (EventSource::Environment, Body::Action(Action::Run(run))) => Some(run),
            _ => None,
        }
    }

    /// A response and what came of each of its calls, which stands somewhere from `index` on.
    fn tell_response(&self, response: &ModelResponse, index: usize, messages: &mut Vec<Message>) {
        messages.push(Message::Assistant(response.message()));
        for call in response.tool_calls() {
            let outcome = self.events[index..].iter().find_map(|event| outcome_of(event, response, &call.id));
            let text = outcome.map_or_else(|| "The call was not made.".to_owned(), to_text);
            messages.push(Message::ToolResult {
                call_id: call.id,
                name: call.name,
                parts: vec![Part::Text(text)],
            });
        }
    }
}

/// Whether an event is part of the exchange between agent, user and sandbox.
fn is_turn(event: &Event) -> bool {
    match &event.body {
        Body::Action(action) => !matches!(action, Action::ChangeAgentState(_) | Action::Null(_)),
        Body::Observation(observation) => {
            !matches!(observation.kind, ObservationKind::AgentStateChanged(_) | ObservationKind::Null(_))
        }
        Body::Record(_) => false,
    }
}

/// Tells responses apart, also those of providers that give them no id.
fn identity(response: &ModelResponse) -> (String, Option<String>) {
    (response.id().to_owned(), response.tool_calls().into_iter().next().map(|call| call.id))
}

fn outcome_of<'a>(event: &'a Event, response: &ModelResponse, call: &str) -> Option<&'a Body> {
    let metadata = event.tool_call_metadata.as_ref()?;
    let is_it = metadata.tool_call_id == call && metadata.model_response["id"] == response.0["id"];
    let is_outcome = matches!(
        event.body,
        Body::Observation(_) | Body::Action(Action::Finish(_) | Action::Reject(_) | Action::Message(_))
    );
    (is_it && is_outcome).then_some(&event.body)
}

fn tell_action(source: EventSource, action: &Action) -> Option<Message> {
    match (source, action) {
        (_, Action::System(system)) => Some(Message::System(system.content.clone())),
        (EventSource::User, Action::Message(message)) => {
            let images = message.image_urls.iter().flatten().cloned().map(Part::Image);
            let text = Part::Text(message.content.clone());
            Some(Message::User(std::iter::once(text).chain(images).collect()))
        }
        (_, Action::Message(message)) => Some(assistant(&message.content)),
        _ => None,
    }
}

/// An observation that no call of the model's asked for.
fn tell_unasked(observation: &Observation) -> Option<Message> {
    match &observation.kind {
        ObservationKind::AgentStateChanged(_) | ObservationKind::Null(_) => None,
        _ => Some(Message::User(vec![Part::Text(observation_text(observation))])),
    }
}

/// What the agent should know of a step that it did not ask for: of one that went well, that it did.
fn tell_setup(step: &RunAction, observation: &Observation) -> Message {
    let text = match &observation.kind {
        ObservationKind::Run(run) => {
            let metadata = &run.metadata;
            let said = match metadata.exit_code {
                0 => "done.".to_owned(),
                code => {
                    let output = end_of(&observation.content);
                    format!("failed with exit code {code}.{output}{}", metadata.suffix)
                }
            };
            let folder = metadata.working_dir.as_ref();
            let folder = folder.map(|folder| format!("\n[Working directory: {folder}]")).unwrap_or_default();
            said + &folder
        }
        _ => observation.content.clone(),
    };
    Message::User(vec![Part::Text(format!("Before you began: {}: {text}", step.thought))])
}

/// The end of an output, on lines of its own.
fn end_of(output: &str) -> String {
    let skipped = output.chars().count().saturating_sub(SETUP_CHARACTERS);
    let shown: String = output.chars().skip(skipped).collect();
    format!("{}\n{shown}", if skipped > 0 { " The end of its output:" } else { "" })
}

fn assistant(text: &str) -> Message {
    let mut message = serde_json::Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), text.into());
    Message::Assistant(message)
}

fn to_text(outcome: &Body) -> String {
    match outcome {
        Body::Observation(observation) => observation_text(observation),
        Body::Action(action) => action.message(),
        Body::Record(_) => String::new(),
    }
}

fn observation_text(observation: &Observation) -> String {
    match &observation.kind {
        ObservationKind::Run(run) if run.hidden => "The command ran.".into(),
        ObservationKind::Run(run) => {
            let metadata = &run.metadata;
            let mut text = format!("{}{}{}", metadata.prefix, observation.content, metadata.suffix);
            if let Some(folder) = &metadata.working_dir {
                text.push_str(&format!("\n[Working directory: {folder}]"));
            }
            text
        }
        ObservationKind::Error(_) => format!("ERROR: {}", observation.content),
        ObservationKind::Recall(recall) => crate::memory::tell(recall),
        _ => observation.content.clone(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::action::MessageAction;
    use protocol::observation::{CommandMetadata, RunObservation};
    use serde_json::json;

    use super::*;
    use crate::testing::timestamp;

    fn metadata(call: &str) -> ToolCallMetadata {
        let calls: Vec<_> = ["a", "b"]
            .iter()
            .map(|id| json!({"id": id, "type": "function", "function": {"name": "execute_bash", "arguments": "{}"}}))
            .collect();
        ToolCallMetadata {
            function_name: "execute_bash".into(),
            tool_call_id: call.into(),
            model_response: json!({"id": "r1", "choices": [{"message": {"role": "assistant", "content": "both", "tool_calls": calls}}]}),
            total_calls_in_response: 2,
        }
    }

    fn log(bodies: Vec<(EventSource, Body, Option<&str>)>) -> View {
        let events = bodies.into_iter().enumerate().map(|(id, (source, body, call))| {
            let mut event = Event::new(EventId(id as u64), timestamp(), source, body);
            event.tool_call_metadata = call.map(metadata);
            Arc::new(event)
        });
        View::whole(events.collect())
    }

    fn says(text: &str) -> (EventSource, Body, Option<&'static str>) {
        let message = MessageAction { content: text.into(), ..Default::default() };
        (EventSource::User, Action::from(message).into(), None)
    }

    fn runs(call: &'static str) -> (EventSource, Body, Option<&'static str>) {
        (EventSource::Agent, Action::from(RunAction::default()).into(), Some(call))
    }

    fn ran(call: &'static str) -> (EventSource, Body, Option<&'static str>) {
        let observation = Observation::new(format!("output of {call}"), RunObservation::default());
        (EventSource::Agent, observation.into(), Some(call))
    }

    fn result(message: &Message) -> (&str, &str) {
        let Message::ToolResult { call_id, parts, .. } = message else { panic!("a result, not {message:?}") };
        let [Part::Text(text)] = parts.as_slice() else { panic!("one text") };
        (call_id, text)
    }

    #[test]
    fn calls_of_one_response_are_one_turn_with_their_results() {
        let messages = log(vec![says("go"), runs("a"), ran("a"), runs("b"), ran("b")]).messages();
        assert_eq!(messages.len(), 4);
        assert!(matches!(&messages[1], Message::Assistant(message) if message["content"] == "both"));
        assert_eq!(result(&messages[2]), ("a", "output of a"));
        assert_eq!(result(&messages[3]), ("b", "output of b"));
    }

    #[test]
    fn a_call_that_was_never_made_has_a_result_all_the_same() {
        let messages = log(vec![says("go"), runs("a"), ran("a"), says("stop that")]).messages();
        assert_eq!(result(&messages[3]), ("b", "The call was not made."));
        assert!(matches!(&messages[4], Message::User(_)));
    }

    #[test]
    fn the_next_call_of_a_response_is_found_in_the_log() {
        let next = |view: &View| view.unmade_call().map(|(call, metadata)| (call.id, metadata.tool_call_id));
        assert_eq!(next(&log(vec![says("go")])), None);
        assert_eq!(next(&log(vec![says("go"), runs("a"), ran("a")])), Some(("b".into(), "b".into())));
        assert_eq!(next(&log(vec![says("go"), runs("a"), ran("a"), runs("b"), ran("b")])), None);
        assert_eq!(next(&log(vec![says("go"), runs("a"), ran("a"), says("no, something else")])), None);
    }

    #[test]
    fn of_a_setup_the_agent_is_told_what_went_wrong() {
        let step = |thought: &str| {
            let run =
                RunAction { command: "long text".into(), thought: thought.into(), ..Default::default() };
            (EventSource::Environment, Action::from(run).into(), None)
        };
        let ran = |exit_code, output: String| {
            let metadata =
                CommandMetadata { exit_code, working_dir: Some("/w".into()), ..Default::default() };
            let observation = Observation::new(output, RunObservation { metadata, ..Default::default() });
            (EventSource::Agent, observation.into(), None)
        };
        let noise = "x".repeat(100_000);
        let mut events =
            log(vec![step("Cloning a"), ran(0, noise.clone()), step("Running b"), ran(3, noise + "why")])
                .events;
        for (ended, cause) in [(1, 0), (3, 2)] {
            let mut event = Event::clone(&events[ended]);
            event.cause = Some(EventId(cause));
            events[ended] = Arc::new(event);
        }
        let told: Vec<_> = View::whole(events)
            .messages()
            .into_iter()
            .map(|message| match message {
                Message::User(parts) => match parts.as_slice() {
                    [Part::Text(text)] => text.clone(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told[0], "Before you began: Cloning a: done.\n[Working directory: /w]");
        assert!(
            told[1].starts_with(
                "Before you began: Running b: failed with exit code 3. The end of its output:\n"
            )
        );
        assert!(
            told[1].ends_with("xwhy\n[Working directory: /w]") && told[1].len() < 2200,
            "{}",
            told[1].len()
        );
        assert_eq!(told.len(), 2);
    }
}
