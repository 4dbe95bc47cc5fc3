//! The conversation as a model is told it, turn by turn.
//!
//! A model's provider refuses a call without a result, so every call of a response that is shown gets one.

use std::collections::{HashMap, HashSet};

use protocol::action::RunAction;
use protocol::{Action, EventBody, EventId, EventSource, Observation, ObservationKind};

use super::{Shown, View};
use crate::llm::{AssistantMessage, ChatMessage, MessagePart};
use crate::memory;

/// Images of one observation.
const MOST_IMAGES: usize = 8;

/// How much of the output of a failed step of a set-up is told: why it failed stands at the end.
const SETUP_CHARACTERS: usize = 2000;

impl View {
    /// The conversation as a model is told it. Takes time and memory as what is told is long.
    pub fn messages(&self) -> Vec<ChatMessage> {
        let telling = Telling::of(self.shown());
        let mut messages = Vec::new();
        let mut told = HashSet::new();
        for shown in self.shown() {
            match (&shown.event.tool_call_metadata, &shown.event.body) {
                (Some(metadata), _) => {
                    if told.insert(shown.group) {
                        let message = AssistantMessage::from(&metadata.model_response);
                        telling.tell_response(message, shown.group, &mut messages);
                    }
                }
                (None, EventBody::Action(action)) => messages.extend(tell_action(shown.event.source, action)),
                (None, EventBody::Observation(observation)) => {
                    messages.extend(match (&shown.instead, telling.setup_step(shown)) {
                        (Some(instead), _) => Some(user(instead.to_string())),
                        (None, Some(step)) => Some(tell_setup(step, observation)),
                        (None, None) => tell_unasked(observation),
                    });
                }
                (None, EventBody::Record(_)) => {}
            }
        }
        messages
    }
}

/// What has to be found for a turn elsewhere in the view.
struct Telling<'a> {
    /// What came of a response's calls, by its group and the call's id.
    outcomes: HashMap<(EventId, &'a str), &'a Shown>,
    /// Steps of the workspace's set-up.
    setup_steps: HashMap<EventId, &'a RunAction>,
}

impl<'a> Telling<'a> {
    fn of(shown: &'a [Shown]) -> Self {
        let mut telling = Self { outcomes: HashMap::new(), setup_steps: HashMap::new() };
        for shown in shown {
            match (&shown.event.tool_call_metadata, shown.event.source, &shown.event.body) {
                (Some(metadata), _, body) if is_outcome(body) => {
                    telling.outcomes.entry((shown.group, &metadata.tool_call_id)).or_insert(shown);
                }
                (None, EventSource::Environment, EventBody::Action(Action::Run(run))) => {
                    telling.setup_steps.insert(shown.event.id, run);
                }
                _ => {}
            }
        }
        telling
    }

    /// A response and what came of each of its calls.
    fn tell_response(&self, message: AssistantMessage, group: EventId, messages: &mut Vec<ChatMessage>) {
        let calls = message.tool_calls();
        messages.push(ChatMessage::Assistant(message.into_fields()));
        for call in calls {
            let outcome = self.outcomes.get(&(group, call.id.as_str()));
            let parts = outcome.map_or_else(
                || vec![MessagePart::Text("The call was not made.".to_owned())],
                |shown| shown.parts(),
            );
            messages.push(ChatMessage::ToolResult { call_id: call.id, name: call.name, parts });
        }
    }

    /// The step of the workspace's set-up that an observation is the end of.
    fn setup_step(&self, ended: &Shown) -> Option<&'a RunAction> {
        self.setup_steps.get(&ended.event.cause?).copied()
    }
}

impl Shown {
    /// What it says and shows, as an outcome of something.
    fn parts(&self) -> Vec<MessagePart> {
        let images = match (&self.instead, &self.event.body) {
            (None, EventBody::Observation(Observation { kind: ObservationKind::Mcp(mcp), .. })) => {
                mcp.image_urls.as_slice()
            }
            (None, EventBody::Observation(Observation { kind: ObservationKind::Browse(page), .. })) => {
                let marked = &page.set_of_marks;
                std::slice::from_ref(if marked.is_empty() { &page.screenshot } else { marked })
            }
            (None, EventBody::Observation(Observation { kind: ObservationKind::RunIpython(cell), .. })) => {
                cell.image_urls.as_deref().unwrap_or_default()
            }
            _ => &[],
        };
        // Those of a cell are a sandbox's word: no address that a provider would fetch, and no more than ours sends.
        let images = images.iter().filter(|url| url.starts_with("data:image/")).take(MOST_IMAGES);
        let text = MessagePart::Text(self.text());
        std::iter::once(text).chain(images.cloned().map(MessagePart::Image)).collect()
    }

    /// What it says, as an outcome of something.
    pub(crate) fn text(&self) -> String {
        match (&self.instead, &self.event.body) {
            (Some(instead), _) => instead.to_string(),
            (None, EventBody::Observation(observation)) => observation_text(observation),
            (None, EventBody::Action(action)) => action.message(),
            (None, EventBody::Record(_)) => String::new(),
        }
    }
}

fn is_outcome(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::Observation(_)
            | EventBody::Action(
                Action::Finish(_) | Action::Reject(_) | Action::Message(_) | Action::CondensationRequest(_)
            )
    )
}

fn tell_action(source: EventSource, action: &Action) -> Option<ChatMessage> {
    match (source, action) {
        (_, Action::System(system)) => Some(ChatMessage::System(system.content.clone())),
        (EventSource::User, Action::Message(message)) => {
            let images = message.image_urls.iter().flatten().cloned().map(MessagePart::Image);
            let text = MessagePart::Text(message.content.clone());
            Some(ChatMessage::User(std::iter::once(text).chain(images).collect()))
        }
        (_, Action::Message(message)) => Some(assistant(&message.content)),
        _ => None,
    }
}

/// An observation that no call of the model's asked for.
fn tell_unasked(observation: &Observation) -> Option<ChatMessage> {
    match &observation.kind {
        ObservationKind::AgentStateChanged(_) | ObservationKind::Null(_) => None,
        _ => Some(user(observation_text(observation))),
    }
}

/// What the agent should know of a step that it did not ask for: of one that went well, that it did.
fn tell_setup(step: &RunAction, observation: &Observation) -> ChatMessage {
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
        _ => end_of(&observation.content),
    };
    user(format!("Before you began: {}: {text}", step.thought))
}

/// The end of an output, on lines of its own.
fn end_of(output: &str) -> String {
    let skipped = output.chars().count().saturating_sub(SETUP_CHARACTERS);
    let shown: String = output.chars().skip(skipped).collect();
    format!("{}\n{shown}", if skipped > 0 { " The end of its output:" } else { "" })
}

fn assistant(text: &str) -> ChatMessage {
    let mut message = serde_json::Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), text.into());
    ChatMessage::Assistant(message)
}

fn user(text: String) -> ChatMessage {
    ChatMessage::User(vec![MessagePart::Text(text)])
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
        ObservationKind::Recall(recall) => memory::format_recall(recall),
        _ => observation.content.clone(),
    }
}
