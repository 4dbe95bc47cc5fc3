//! Renders a view as messages for a model.
//!
//! Providers reject a tool call without a result, so each call of a rendered response gets one. A
//! message that arrived while the model was called follows the response: each request extends the
//! one before, which caches and signed reasoning depend on.

use std::collections::{HashMap, HashSet};

use protocol::action::RunAction;
use protocol::observation::{MicroagentKnowledge, RecallObservation};
use protocol::{Action, EventBody, EventId, EventSource, Observation, ObservationKind};

use super::{View, ViewEntry};
use crate::llm::{AssistantMessage, ChatMessage, MessagePart};
use crate::memory;
use crate::secrets::REDACTED;

/// Maximum number of images of one observation.
const MAX_IMAGES: usize = 8;

/// Maximum length of the output of a failed setup step, in characters. Its end is kept, which has
/// the error.
const MAX_SETUP_OUTPUT_CHARS: usize = 2000;

impl View {
    /// Renders the view. Takes time and memory in proportion to its length.
    pub fn messages(&self) -> Vec<ChatMessage> {
        let renderer = MessageRenderer::new(self.entries());
        let mut messages = Vec::new();
        let mut rendered = HashSet::new();
        let mut recalled = HashSet::new();
        // The events since the latest response, with the number of messages before each.
        let mut since_response: Vec<(EventId, usize)> = Vec::new();
        for entry in self.entries() {
            let (event, group) = (&entry.event, entry.group);
            if event.tool_call_metadata.is_some() && !rendered.insert(group) {
                continue;
            }
            // A summary has a later id than the events that it precedes.
            let is_unseen = |(id, _): &&(EventId, usize)| {
                *id < event.id && event.events_seen.is_some_and(|seen| *id >= seen)
            };
            let first_unseen = since_response.iter().rev().take_while(is_unseen).last();
            let seen_count = first_unseen.map_or(messages.len(), |(_, count)| *count);
            let unseen = messages.split_off(seen_count);
            if event.tool_call_metadata.is_some() || event.events_seen.is_some() {
                since_response.clear();
            } else {
                since_response.push((event.id, messages.len()));
            }
            match &event.tool_call_metadata {
                Some(metadata) => {
                    renderer.render_response(
                        (&metadata.model_response).into(),
                        group,
                        &mut messages,
                    );
                }
                None => messages.extend(renderer.render_event(entry, &mut recalled)),
            }
            messages.extend(unseen);
        }
        messages
    }
}

/// Indexes events of a view that other events refer to.
struct MessageRenderer<'a> {
    /// Results of tool calls, by the group of the response and the id of the call.
    results: HashMap<(EventId, &'a str), &'a ViewEntry>,
    /// Steps of the workspace's setup.
    setup_steps: HashMap<EventId, &'a RunAction>,
}

impl<'a> MessageRenderer<'a> {
    fn new(entries: &'a [ViewEntry]) -> Self {
        let mut renderer = Self {
            results: HashMap::new(),
            setup_steps: HashMap::new(),
        };
        for entry in entries {
            match (
                &entry.event.tool_call_metadata,
                entry.event.source,
                &entry.event.body,
            ) {
                (Some(metadata), _, body) if is_result(body) => {
                    renderer
                        .results
                        .entry((entry.group, &metadata.tool_call_id))
                        .or_insert(entry);
                }
                (None, EventSource::Environment, EventBody::Action(Action::Run(run))) => {
                    renderer.setup_steps.insert(entry.event.id, run);
                }
                _ => {}
            }
        }
        renderer
    }

    /// Renders an event that belongs to no response. `recalled` are the names of the knowledge in
    /// the messages before.
    fn render_event(
        &self,
        entry: &'a ViewEntry,
        recalled: &mut HashSet<&'a str>,
    ) -> Option<ChatMessage> {
        match &entry.event.body {
            EventBody::Action(action) => render_action(entry.event.source, action),
            EventBody::Observation(observation) => {
                match (&entry.replacement, self.setup_step(entry)) {
                    (Some(replacement), _) => Some(user(replacement.to_string())),
                    (None, Some(step)) if step.hidden => None,
                    (None, Some(step)) => Some(render_setup(step, observation)),
                    (None, None) => render_notice(observation, recalled),
                }
            }
            EventBody::Record(_) => None,
        }
    }

    /// Renders a response and the results of its calls.
    fn render_response(
        &self,
        message: AssistantMessage,
        group: EventId,
        messages: &mut Vec<ChatMessage>,
    ) {
        let calls: Vec<_> = message
            .tool_calls
            .iter()
            .map(|call| (call.id.clone(), call.name.clone()))
            .collect();
        messages.push(ChatMessage::Assistant(message));
        let mut made = HashSet::new();
        for (call_id, name) in calls {
            // Of several calls with the same id, which old logs have, only the first was made.
            let is_first = made.insert(call_id.clone());
            let result = self
                .results
                .get(&(group, call_id.as_str()))
                .filter(|_| is_first);
            let parts = result.map_or_else(
                || vec![MessagePart::Text("The call was not made.".to_owned())],
                |entry| entry.parts(),
            );
            messages.push(ChatMessage::ToolResult {
                call_id,
                name,
                parts,
            });
        }
    }

    /// Returns the step of the workspace's setup that an observation belongs to.
    fn setup_step(&self, entry: &ViewEntry) -> Option<&'a RunAction> {
        self.setup_steps.get(&entry.event.cause?).copied()
    }
}

impl ViewEntry {
    /// Returns its text and images, as a result.
    fn parts(&self) -> Vec<MessagePart> {
        let images = match (&self.replacement, &self.event.body) {
            (
                None,
                EventBody::Observation(Observation {
                    kind: ObservationKind::Mcp(mcp),
                    ..
                }),
            ) => mcp.image_urls.as_slice(),
            (
                None,
                EventBody::Observation(Observation {
                    kind: ObservationKind::Browse(page),
                    ..
                }),
            ) => {
                let marked = &page.set_of_marks;
                std::slice::from_ref(if marked.is_empty() {
                    &page.screenshot
                } else {
                    marked
                })
            }
            (
                None,
                EventBody::Observation(Observation {
                    kind: ObservationKind::RunIpython(cell),
                    ..
                }),
            ) => cell.image_urls.as_deref().unwrap_or_default(),
            _ => &[],
        };
        // The images of a cell are untrusted: no URL that a provider would fetch, and a bounded
        // number.
        let images = images
            .iter()
            .filter(|url| url.starts_with("data:image/"))
            .take(MAX_IMAGES);
        let text = MessagePart::Text(self.text());
        std::iter::once(text)
            .chain(images.map(|url| image_part(url)))
            .collect()
    }

    /// Returns its text, as a result.
    pub(crate) fn text(&self) -> String {
        match (&self.replacement, &self.event.body) {
            (Some(replacement), _) => replacement.to_string(),
            (None, EventBody::Observation(observation)) => observation_text(observation),
            (None, EventBody::Action(action)) => action.message(),
            (None, EventBody::Record(_)) => String::new(),
        }
    }
}

fn is_result(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::Observation(_)
            | EventBody::Action(
                Action::Finish(_)
                    | Action::Reject(_)
                    | Action::Message(_)
                    | Action::CondensationRequest(_)
            )
    )
}

fn render_action(source: EventSource, action: &Action) -> Option<ChatMessage> {
    match (source, action) {
        (_, Action::System(system)) => Some(ChatMessage::System(system.content.clone())),
        (EventSource::User, Action::Message(message)) => {
            let images = message
                .image_urls
                .iter()
                .flatten()
                .map(|url| image_part(url));
            let text = MessagePart::Text(message.content.clone());
            Some(ChatMessage::User(
                std::iter::once(text).chain(images).collect(),
            ))
        }
        (_, Action::Message(message)) => Some(assistant(&message.content)),
        _ => None,
    }
}

/// Renders an image. A redacted URL is not an image any more: the provider would reject each
/// request with it.
fn image_part(url: &str) -> MessagePart {
    if url.contains(REDACTED) {
        MessagePart::Text("[An image is left out: it contains the text of a secret.]".to_owned())
    } else {
        MessagePart::Image(url.to_owned())
    }
}

/// Renders an observation that no tool call caused.
fn render_notice<'a>(
    observation: &'a Observation,
    recalled: &mut HashSet<&'a str>,
) -> Option<ChatMessage> {
    match &observation.kind {
        ObservationKind::AgentStateChanged(_)
        | ObservationKind::Null(_)
        // The conversation has left the loop, or the agent is stopped.
        | ObservationKind::LoopDetection(_) => None,
        ObservationKind::Run(run) if run.hidden => None,
        ObservationKind::Recall(recall) => {
            // V0's logs repeat knowledge.
            let mut is_new = |knowledge: &&'a MicroagentKnowledge| recalled.insert(&knowledge.name);
            let microagent_knowledge = recall.microagent_knowledge.iter().filter(&mut is_new).cloned().collect();
            let recall = RecallObservation { microagent_knowledge, ..RecallObservation::clone(recall) };
            let text = memory::format_recall(&recall);
            (!text.is_empty()).then(|| user(text))
        }
        _ => Some(user(observation_text(observation))),
    }
}

/// Renders a step of the setup: its success, or the end of its output.
fn render_setup(step: &RunAction, observation: &Observation) -> ChatMessage {
    let text = match &observation.kind {
        ObservationKind::Run(run) => {
            let metadata = &run.metadata;
            let status = match metadata.exit_code {
                0 => "done.".to_owned(),
                code => {
                    let output = end_of(&observation.content);
                    format!("failed with exit code {code}.{output}{}", metadata.suffix)
                }
            };
            let folder = metadata.working_dir.as_ref();
            let folder = folder
                .map(|folder| format!("\n[Working directory: {folder}]"))
                .unwrap_or_default();
            status + &folder
        }
        _ => end_of(&observation.content),
    };
    user(format!("Before you started: {}: {text}", step.thought))
}

/// Returns the end of an output, on separate lines.
fn end_of(output: &str) -> String {
    let skipped = output
        .chars()
        .count()
        .saturating_sub(MAX_SETUP_OUTPUT_CHARS);
    let end: String = output.chars().skip(skipped).collect();
    format!(
        "{}\n{end}",
        if skipped > 0 {
            " The end of its output:"
        } else {
            ""
        }
    )
}

fn assistant(text: &str) -> ChatMessage {
    ChatMessage::Assistant(AssistantMessage {
        text: text.to_owned(),
        ..Default::default()
    })
}

fn user(text: String) -> ChatMessage {
    ChatMessage::User(vec![MessagePart::Text(text)])
}

fn observation_text(observation: &Observation) -> String {
    match &observation.kind {
        ObservationKind::Run(run) if run.hidden => "The command ran.".into(),
        ObservationKind::Run(run) => {
            let metadata = &run.metadata;
            let mut text = format!(
                "{}{}{}",
                metadata.prefix, observation.content, metadata.suffix
            );
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
