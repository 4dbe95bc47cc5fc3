//! How a model is told a part of a history, and asked again with less when that is more than it can read.

use protocol::{EventBody, EventSource};

use crate::llm::{AssistantMessage, Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest};
use crate::view::Shown;

/// What a model is told at most, in characters: about what the longest windows hold.
const MOST_CHARACTERS: usize = 2_000_000;

/// What it is told beside events at most, in tokens: instructions, tools, and the summary before.
const BESIDE_EVENTS: u64 = 1 << 16;

/// How often the model is asked again with half of what it was told before.
const MOST_HALVINGS: u32 = 6;

/// Asks for an answer on events, each told in at most `max_event_length` characters; in less when the model's window
/// says so.
///
/// # Errors
/// The model's.
pub(super) async fn ask(
    llm: &dyn Llm,
    events: &[&Shown],
    max_event_length: usize,
    request: &(dyn Fn(&str) -> LlmRequest + Send + Sync),
    on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
) -> Result<Completion, LlmError> {
    let each = |characters: usize| characters / events.len().max(1);
    let told: Vec<String> = events.iter().map(|shown| describe(shown)).collect();
    let mut length = max_event_length.min(each(MOST_CHARACTERS));
    let characters: usize = told.iter().map(|text| text.chars().count().min(length)).sum();
    let mut halvings = 0;
    loop {
        let shortened: Vec<String> = told.iter().map(|text| shorten(text, length)).collect();
        match llm.complete(&request(&shortened.join("\n\n")), on_progress).await {
            Err(error) if error.kind == LlmErrorKind::ContextWindowExceeded && halvings < MOST_HALVINGS => {
                halvings += 1;
                length = each(characters >> halvings);
            }
            result => return result,
        }
    }
}

/// What [`ask`] can cost at most about events of a view, of which so many tokens are all.
pub(super) fn max_cost(llm: &dyn Llm, view_tokens: u64) -> f64 {
    llm.max_cost(view_tokens.saturating_add(BESIDE_EVENTS))
}

/// An event as it is told to who was not there.
fn describe(shown: &Shown) -> String {
    let event = &shown.event;
    let id = event.id;
    match (&event.body, &event.tool_call_metadata) {
        (EventBody::Action(_), Some(metadata)) => {
            let message = AssistantMessage::from(&metadata.model_response);
            let mut calls = message.tool_calls().into_iter();
            let arguments = calls.find(|call| call.id == metadata.tool_call_id).map(|call| call.arguments);
            // What it said beside its calls is told once, with the first.
            let said = message.text();
            let said = if shown.group == id && !said.is_empty() {
                format!(" said: {said}\nIt")
            } else {
                String::new()
            };
            format!(
                "[{id}] The agent{said} called {}: {}",
                metadata.function_name,
                arguments.unwrap_or_default()
            )
        }
        (EventBody::Action(action), None) => {
            let who = match event.source {
                EventSource::Agent => "The agent",
                EventSource::User => "The user",
                EventSource::Environment => "The system",
            };
            format!("[{id}] {who}: {}", action.message())
        }
        _ => format!("[{id}] Result: {}", shown.text()),
    }
}

/// Beginning and end of a text, if all of it is longer than so many characters.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let end = most / 2;
    let beginning: String = text.chars().take(most - end).collect();
    let end: String = text.chars().skip(length - end).collect();
    format!("{beginning}\n[{} characters are left out here]\n{end}", length - most)
}
