//! A model that returns responses from a file, for demonstrations, tests and runs without a
//! provider.
//!
//! Each call returns the next entry, regardless of the request; after the last one it returns
//! [`LlmErrorKind::ScriptEnded`]. Ids are derived from the entry's number, so that runs of a script
//! are reproducible: the third entry has the response id `scripted-3`, and its first call has
//! `call-3-1`. Calls cost nothing. Token counts are those of the entry, or a fourth of the
//! characters.
//!
//! [`SCRIPT_EXAMPLE`] describes the format of the file.

mod script;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::{
    AssistantMessage, ChatMessage, Completion, Llm, LlmError, LlmErrorKind, LlmProgress,
    LlmRequest, MessagePart, ModelResponse, ProviderFields, ToolCall,
};
use protocol::metrics::TokenUsage;
use serde_json::{Value, json};

use script::{Entry, Script, ScriptedUsage};
pub use script::{SCRIPT_EXAMPLE, ScriptError};

/// A scripted model.
#[derive(Debug)]
pub struct ScriptedLlm {
    script: Script,
    /// The index of the next entry.
    next: AtomicUsize,
}

impl ScriptedLlm {
    /// Parses a script.
    ///
    /// # Errors
    /// The script is invalid. The source has the line and column.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        Ok(Self {
            script: serde_json::from_str(text)?,
            next: AtomicUsize::new(0),
        })
    }

    /// Skips the responses that a resumed conversation has in its log, and the errors before them.
    #[must_use]
    pub fn resuming_after(self, response_count: usize) -> Self {
        let entries = (1..).zip(&self.script.responses);
        let responses = entries.filter(|(_, entry)| matches!(entry, Entry::Response { .. }));
        let mut ends = std::iter::once(0).chain(responses.map(|(number, _)| number));
        let next = ends
            .nth(response_count)
            .unwrap_or(self.script.responses.len());
        Self {
            next: AtomicUsize::new(next),
            ..self
        }
    }

    /// Returns the next entry and its number, from 1.
    fn next_entry(&self) -> Option<(usize, &Entry)> {
        // `Relaxed` suffices: only the counter is shared.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        Some((index + 1, self.script.responses.get(index)?))
    }

    fn completion(
        &self,
        number: usize,
        entry: &Entry,
        request: &LlmRequest,
    ) -> Result<Completion, LlmErrorKind> {
        let (text, calls, usage) = match entry {
            Entry::Response { text, calls, usage } => (text.as_deref(), calls, *usage),
            Entry::Error(kind) => return Err(*kind),
        };
        let calls: Vec<ToolCall> = (1..)
            .zip(calls)
            .map(|(position, call)| call.to_call(number, position))
            .collect();
        let usage = usage.unwrap_or_else(|| ScriptedUsage {
            prompt_tokens: estimate_tokens(request_chars(request)),
            completion_tokens: estimate_tokens(
                text.unwrap_or_default().chars().count() + call_chars(&calls),
            ),
        });
        Ok(Completion {
            response: self.response(number, text, calls, usage),
            usage: self.token_usage(number, usage),
            cost: Some(0.0),
            latency: Duration::ZERO,
        })
    }

    fn response(
        &self,
        number: usize,
        text: Option<&str>,
        tool_calls: Vec<ToolCall>,
        usage: ScriptedUsage,
    ) -> ModelResponse {
        let finish_reason = if tool_calls.is_empty() {
            "stop"
        } else {
            "tool_calls"
        };
        let text = text.unwrap_or_default().to_owned();
        let usage = json!({
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.total(),
        });
        let model = self.script.model.as_str().into();
        let fields = [("created", 0.into()), ("model", model), ("usage", usage)];
        ModelResponse {
            id: response_id(number),
            message: AssistantMessage {
                text,
                tool_calls,
                ..AssistantMessage::default()
            },
            finish_reason: finish_reason.to_owned(),
            choice_fields: ProviderFields::default(),
            provider_fields: ProviderFields(
                fields
                    .map(|(name, value)| (name.to_owned(), value))
                    .into_iter()
                    .collect(),
            ),
        }
    }

    fn token_usage(&self, number: usize, usage: ScriptedUsage) -> TokenUsage {
        TokenUsage {
            model: self.script.model.clone(),
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            per_turn_token: usage.total(),
            response_id: response_id(number),
            ..TokenUsage::default()
        }
    }
}

#[async_trait]
impl Llm for ScriptedLlm {
    fn model(&self) -> &str {
        &self.script.model
    }

    fn max_cost(&self, _request_tokens: u64) -> f64 {
        0.0
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let error = |kind, detail| LlmError {
            kind,
            detail,
            retry_after: None,
        };
        let entries = self.script.responses.len();
        let Some((number, entry)) = self.next_entry() else {
            let detail = format!("all {entries} responses of the script are used");
            return Err(error(LlmErrorKind::ScriptEnded, detail));
        };
        self.completion(number, entry, request)
            .map_err(|kind| error(kind, format!("response {number} of the script")))
    }
}

fn response_id(number: usize) -> String {
    format!("scripted-{number}")
}

/// Estimates tokens by the number of characters.
fn estimate_tokens(chars: usize) -> u64 {
    chars.div_ceil(4) as u64
}

fn call_chars(calls: &[ToolCall]) -> usize {
    calls
        .iter()
        .map(|call| call.to_stored().to_string().chars().count())
        .sum()
}

fn request_chars(request: &LlmRequest) -> usize {
    let part_chars = |part: &MessagePart| match part {
        MessagePart::Text(text) => text.chars().count(),
        MessagePart::Image(_) => 0,
    };
    let messages = request.messages.iter().map(|message| match message {
        ChatMessage::System(text) => text.chars().count(),
        ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => {
            parts.iter().map(part_chars).sum()
        }
        ChatMessage::Assistant(message) => Value::Object(message.to_stored())
            .to_string()
            .chars()
            .count(),
    });
    messages.sum()
}
