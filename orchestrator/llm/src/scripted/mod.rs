//! Answers from a file, in order: for demonstrations, tests and runs without a provider.
//!
//! Calls nobody and waits for nothing. Each call takes the next entry, whatever is asked; after the last one every
//! call ends in [`LlmErrorKind::ScriptEnded`]. Ids are made from the entry's place, so that two runs of one script are
//! the same: the third entry's answer is `scripted-3`, its first call `call-3-1`. It costs nothing; tokens are counted
//! as the entry says, or as a fourth of the characters.
//!
//! The file's format is described at [`SCRIPT_EXAMPLE`].

mod script;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::{
    AssistantMessage, ChatMessage, Completion, Llm, LlmError, LlmErrorKind, LlmProgress, LlmRequest,
    MessagePart, ModelResponse, ProviderFields, ToolCall,
};
use protocol::metrics::TokenUsage;
use serde_json::{Value, json};

use script::{Entry, Script, ScriptedUsage};
pub use script::{SCRIPT_EXAMPLE, ScriptError};

/// A model that plays a script.
#[derive(Debug)]
pub struct ScriptedLlm {
    script: Script,
    /// The entry that the next call takes.
    next: AtomicUsize,
}

impl ScriptedLlm {
    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError`], with the line and column in its source.
    pub fn from_json(text: &str) -> Result<Self, ScriptError> {
        Ok(Self { script: serde_json::from_str(text)?, next: AtomicUsize::new(0) })
    }

    /// Goes on after `answers` answers: what a resumed conversation has in its log. Errors are not in a log, so those
    /// before the last of these answers count as played too.
    #[must_use]
    pub fn starting_at(self, answers: usize) -> Self {
        let is_answer = |entry: &Entry| matches!(entry, Entry::Answer { .. });
        let places = self.script.responses.iter().enumerate().filter(|(_, entry)| is_answer(entry));
        let next = match answers {
            0 => 0,
            _ => places.map(|(place, _)| place + 1).nth(answers - 1).unwrap_or(self.script.responses.len()),
        };
        Self { next: AtomicUsize::new(next), ..self }
    }

    /// The next entry and its number, from 1.
    fn take(&self) -> Option<(usize, &Entry)> {
        let advance = |next| (next < self.script.responses.len()).then_some(next + 1);
        // Only the counter is shared, so no ordering beside its own is needed.
        let place = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).ok()?;
        Some((place + 1, self.script.responses.get(place)?))
    }

    fn completion(
        &self,
        number: usize,
        entry: &Entry,
        request: &LlmRequest,
    ) -> Result<Completion, LlmErrorKind> {
        let (text, calls, usage) = match entry {
            Entry::Answer { text, calls, usage } => (text.as_deref(), calls, *usage),
            Entry::Error(kind) => return Err(*kind),
        };
        let calls: Vec<ToolCall> =
            (1..).zip(calls).map(|(place, call)| call.to_call(number, place)).collect();
        let usage = usage.unwrap_or_else(|| ScriptedUsage {
            prompt_tokens: tokens(request_chars(request)),
            completion_tokens: tokens(text.unwrap_or_default().chars().count() + chars(&calls)),
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
        let finish_reason = if tool_calls.is_empty() { "stop" } else { "tool_calls" };
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
            message: AssistantMessage { text, tool_calls, ..AssistantMessage::default() },
            finish_reason: finish_reason.to_owned(),
            choice_fields: ProviderFields::default(),
            provider_fields: ProviderFields(
                fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
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
        let failed = |kind, detail| LlmError { kind, detail, retry_after: None };
        let entries = self.script.responses.len();
        let Some((number, entry)) = self.take() else {
            let detail = format!("all {entries} responses of the script are played");
            return Err(failed(LlmErrorKind::ScriptEnded, detail));
        };
        self.completion(number, entry, request)
            .map_err(|kind| failed(kind, format!("response {number} of the script")))
    }
}

fn response_id(number: usize) -> String {
    format!("scripted-{number}")
}

/// A rough count, as good as any for a model that does not exist.
fn tokens(chars: usize) -> u64 {
    chars.div_ceil(4) as u64
}

fn chars(calls: &[ToolCall]) -> usize {
    calls.iter().map(|call| call.to_stored().to_string().len()).sum()
}

fn request_chars(request: &LlmRequest) -> usize {
    let part = |part: &MessagePart| match part {
        MessagePart::Text(text) => text.chars().count(),
        MessagePart::Image(_) => 0,
    };
    let messages = request.messages.iter().map(|message| match message {
        ChatMessage::System(text) => text.chars().count(),
        ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => parts.iter().map(part).sum(),
        ChatMessage::Assistant(message) => Value::Object(message.to_stored()).to_string().len(),
    });
    messages.sum()
}
