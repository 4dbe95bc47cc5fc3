//! Tool calls for models that cannot make them: written in the text, both ways.
//!
//! An [`Llm`] around an [`Llm`] that knows no tools. The tools are described in the system prompt; calls are found in the
//! answer's text, in V0's format; earlier calls and their results are told as text. A call that is not well formed becomes
//! a call whose arguments are what was written: the agent says that they do not parse, and here the format is told again
//! beside that.

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

pub(crate) use format::STOP;

/// A model that makes its calls in its text.
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

    /// The tools are told in other words, and what holds calls and results in the text is short beside them.
    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.inner.max_cost(request_tokens.saturating_mul(2))
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let mut completion = self.inner.complete(&told(request), on_progress).await?;
        if !request.tools.is_empty() {
            find_calls(&mut completion.response, &request.tools);
        }
        Ok(completion)
    }
}

/// The request without tools: all that it says of them is text.
fn told(request: &LlmRequest) -> LlmRequest {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut malformed = HashSet::new();
    // Goes into the first system prompt.
    let mut described = (!request.tools.is_empty()).then(|| prompt::of(&request.tools));
    if !request.messages.iter().any(|message| matches!(message, ChatMessage::System(_))) {
        messages.extend(described.take().map(ChatMessage::System));
    }
    for message in &request.messages {
        match message {
            ChatMessage::System(text) => {
                let parts: Vec<String> = std::iter::once(text.clone()).chain(described.take()).collect();
                messages.push(ChatMessage::System(parts.join("\n\n")));
            }
            ChatMessage::User(parts) => say(&mut messages, parts.clone()),
            ChatMessage::Assistant(message) => {
                let broken =
                    message.tool_calls.iter().filter(|call| format::object(&call.arguments).is_none());
                malformed.extend(broken.map(|call| call.id.clone()));
                messages.push(ChatMessage::Assistant(written(message, &request.tools)));
            }
            ChatMessage::ToolResult { call_id, name, parts } => {
                let heading = MessagePart::Text(format!("Result of {name}:"));
                let reminder =
                    malformed.contains(call_id).then(|| MessagePart::Text(prompt::FORMAT.to_owned()));
                say(&mut messages, std::iter::once(heading).chain(parts.clone()).chain(reminder).collect());
            }
        }
    }
    LlmRequest { messages, tools: Vec::new() }
}

/// What follows each other without a word of the model's is one turn: many of these models know no other way.
fn say(messages: &mut Vec<ChatMessage>, parts: Vec<MessagePart>) {
    match messages.last_mut() {
        Some(ChatMessage::User(said)) => said.extend(parts),
        _ => messages.push(ChatMessage::User(parts)),
    }
}

/// The model's turn with its calls in the text.
fn written(message: &AssistantMessage, tools: &[Tool]) -> AssistantMessage {
    let text = (!message.text.is_empty()).then(|| message.text.clone());
    let calls = message.tool_calls.iter().map(|call| format::write(call, tools));
    let parts: Vec<String> = text.into_iter().chain(calls).collect();
    AssistantMessage {
        text: parts.join("\n\n"),
        tool_calls: Vec::new(),
        provider_fields: message.provider_fields.clone(),
    }
}

fn find_calls(response: &mut ModelResponse, tools: &[Tool]) {
    let (text, calls) = format::read(&response.message.text, tools);
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
