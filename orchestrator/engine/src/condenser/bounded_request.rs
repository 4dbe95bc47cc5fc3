//! Sends a part of a history to a model, and truncates the events if they exceed its context
//! window.

use protocol::{EventBody, EventSource};

use crate::llm::{
    AssistantMessage, Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest,
};
use crate::view::ViewEntry;

/// Maximum length of all events in a request, in characters: about the size of the largest context
/// windows.
const MAX_CHARS: usize = 2_000_000;

/// Maximum number of tokens for everything but the events: instructions, tools, and the previous
/// summary.
const MAX_OTHER_TOKENS: u64 = 1 << 16;

/// Maximum number of retries, each with half of the previous length.
const MAX_HALVINGS: u32 = 6;

/// Requests a completion about events, each truncated to `max_event_length` characters, or to less
/// if the model's context window requires it.
///
/// # Errors
/// The call of the model failed.
pub(super) async fn complete_about(
    llm: &dyn Llm,
    events: &[&ViewEntry],
    max_event_length: usize,
    request: &(dyn Fn(&str) -> LlmRequest + Send + Sync),
    on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
) -> Result<Completion, LlmError> {
    let each = |characters: usize| characters / events.len().max(1);
    let texts: Vec<String> = events.iter().map(|entry| describe(entry)).collect();
    let mut length = max_event_length.min(each(MAX_CHARS));
    let characters: usize = texts
        .iter()
        .map(|text| text.chars().count().min(length))
        .sum();
    let mut halvings = 0;
    loop {
        let shortened: Vec<String> = texts.iter().map(|text| shorten(text, length)).collect();
        match llm
            .complete(&request(&shortened.join("\n\n")), on_progress)
            .await
        {
            Err(error)
                if error.kind == LlmErrorKind::ContextWindowExceeded && halvings < MAX_HALVINGS =>
            {
                halvings += 1;
                length = each(characters >> halvings);
            }
            result => return result,
        }
    }
}

/// Returns the maximum cost of [`complete_about`] for events of a view with `view_tokens` tokens.
pub(super) fn max_cost(llm: &dyn Llm, view_tokens: u64) -> f64 {
    llm.max_cost(view_tokens.saturating_add(MAX_OTHER_TOKENS))
}

/// Describes an event in the third person.
fn describe(entry: &ViewEntry) -> String {
    let event = &entry.event;
    let id = event.id;
    match (&event.body, &event.tool_call_metadata) {
        (EventBody::Action(_), Some(metadata)) => {
            let message = AssistantMessage::from(&metadata.model_response);
            let mut calls = message.tool_calls.into_iter();
            let arguments = calls
                .find(|call| call.id == metadata.tool_call_id)
                .map(|call| call.arguments);
            // The text of the response is included once, with its first call.
            let text = message.text;
            let prefix = if entry.group == id && !text.is_empty() {
                format!(" said: {text}\nIt")
            } else {
                String::new()
            };
            format!(
                "[{id}] The agent{prefix} called {}: {}",
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
        _ => format!("[{id}] Result: {}", entry.text()),
    }
}

/// Removes the middle of a text that has more than `max_chars` characters.
pub(super) fn shorten(text: &str, max_chars: usize) -> String {
    let length = text.chars().count();
    if length <= max_chars {
        return text.to_owned();
    }
    let end = max_chars / 2;
    let start: String = text.chars().take(max_chars - end).collect();
    let end: String = text.chars().skip(length - end).collect();
    format!(
        "{start}\n[{} characters omitted]\n{end}",
        length - max_chars
    )
}
