//! Emulates tool calls for models without them.
//!
//! An [`Llm`] around an [`Llm`] without tools. The system prompt describes the tools. Calls are
//! parsed from the text of the response, in V0's format; earlier calls and their results are sent
//! as text. A malformed call becomes a call whose arguments are its text: the agent reports that
//! they are invalid, and this module repeats the description of the format.

mod format;
mod prompt;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use engine::llm::{
    AssistantMessage, ChatMessage, Completion, Llm, LlmError, LlmProgress, LlmRequest, MessagePart,
    ModelResponse, ProviderFields, Tool, ToolCall,
};

use crate::history;

pub(crate) use format::CALL_END;

/// A model with emulated tool calls.
pub(crate) struct TextCallsLlm {
    inner: Arc<dyn Llm>,
}

impl TextCallsLlm {
    pub(crate) fn new(inner: Arc<dyn Llm>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl Llm for TextCallsLlm {
    fn model(&self) -> &str {
        self.inner.model()
    }

    /// Allows for the text around tools, calls and results, which is shorter than these.
    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.inner.max_cost(request_tokens.saturating_mul(2))
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let mut completion = self
            .inner
            .complete(&without_tools(request), on_progress)
            .await?;
        if !request.tools.is_empty() {
            parse_calls(&mut completion.response, &request.tools);
        }
        Ok(completion)
    }
}

/// Converts a request to one without tools, which are described in the text.
fn without_tools(request: &LlmRequest) -> LlmRequest {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut malformed = HashSet::new();
    // Appended to the first system prompt.
    let mut description =
        (!request.tools.is_empty()).then(|| prompt::describe_tools(&request.tools));
    if !request
        .messages
        .iter()
        .any(|message| matches!(message, ChatMessage::System(_)))
    {
        messages.extend(description.take().map(ChatMessage::System));
    }
    for message in &request.messages {
        match message {
            ChatMessage::System(text) => {
                let parts: Vec<String> = std::iter::once(text.clone())
                    .chain(description.take())
                    .collect();
                messages.push(ChatMessage::System(parts.join("\n\n")));
            }
            ChatMessage::User(parts) => push_user_parts(&mut messages, parts.clone()),
            ChatMessage::Assistant(message) => {
                let invalid = message
                    .tool_calls
                    .iter()
                    .filter(|call| format::parse_object(&call.arguments).is_none());
                malformed.extend(invalid.map(|call| call.id.clone()));
                messages.push(ChatMessage::Assistant(with_calls_as_text(
                    message,
                    &request.tools,
                )));
            }
            ChatMessage::ToolResult {
                call_id,
                name,
                parts,
            } => {
                let heading = MessagePart::Text(format!("Result of {name}:"));
                let reminder = malformed
                    .contains(call_id)
                    .then(|| MessagePart::Text(prompt::FORMAT.to_owned()));
                push_user_parts(
                    &mut messages,
                    std::iter::once(heading)
                        .chain(parts.clone())
                        .chain(reminder)
                        .collect(),
                );
            }
        }
    }
    LlmRequest {
        messages,
        tools: Vec::new(),
    }
}

/// Appends to the user's message if it is the last one: many of these models require alternating
/// roles.
fn push_user_parts(messages: &mut Vec<ChatMessage>, parts: Vec<MessagePart>) {
    match messages.last_mut() {
        Some(ChatMessage::User(last)) => last.extend(parts),
        _ => messages.push(ChatMessage::User(parts)),
    }
}

/// Returns a message of the model with its calls as text, also those of a model with native calls.
fn with_calls_as_text(message: &AssistantMessage, tools: &[Tool]) -> AssistantMessage {
    let text = (!message.text.is_empty()).then(|| message.text.clone());
    let calls = message
        .tool_calls
        .iter()
        .map(|call| format::format_call(call, tools));
    let parts: Vec<String> = text.into_iter().chain(calls).collect();
    let mut provider_fields = message.provider_fields.clone();
    history::remove_original_calls(&mut provider_fields);
    AssistantMessage {
        text: parts.join("\n\n"),
        tool_calls: Vec::new(),
        provider_fields,
    }
}

fn parse_calls(response: &mut ModelResponse, tools: &[Tool]) {
    let (text, calls) = format::parse_response(&response.message.text, tools);
    if calls.is_empty() {
        return;
    }
    let call = |(number, (name, arguments))| ToolCall {
        id: format!("{}-call-{number}", response.id),
        name,
        arguments,
        provider_fields: ProviderFields::default(),
    };
    response.message.tool_calls = (1..).zip(calls).map(call).collect();
    response.message.text = text;
    response.finish_reason = "tool_calls".into();
}
