//! Makes of each request one that its provider accepts, whatever models have written before. Pure,
//! except for what it learns from refusals.
//!
//! It works on a copy: the log keeps what the model wrote. The same message becomes the same text,
//! whatever follows it, so that a request remains the start of the next one: prompt caches and the
//! signatures of reasoning depend on it.

mod calls;
mod images;
mod reasoning;
mod schema;
#[cfg(test)]
mod tests;

use engine::llm::{AssistantMessage, ChatMessage, LlmRequest, MessagePart, ModelResponse, Tool};
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::config::LlmConfig;
use crate::models::is_of_family;
use calls::CallIds;
pub(crate) use calls::remove_original_calls;
use images::RefusedImages;
pub(crate) use reasoning::HistoryRefusal;
use reasoning::Reasoning;

/// The result of a call that has none, which every provider refuses.
const NO_RESULT: &str = "The call was not made.";

/// A turn of the user, where a provider requires one: before a first message of the model, and
/// after a message of the model that ended its turn, since newer models continue no message of
/// their own.
const CONTINUE: &str = "Continue.";

/// Stands between results and the user's next message.
const BRIDGE: &str = "OK.";

/// Precedes images that a result cannot hold.
const MOVED_IMAGES: &str = "Images of the results above:";

/// Models whose templates refuse a user's message after a result, and call ids of another form than
/// 9 letters and digits.
const STRICT_TEMPLATES: [&str; 7] = [
    "mistral",
    "ministral",
    "devstral",
    "codestral",
    "magistral",
    "mixtral",
    "pixtral",
];

/// What the provider of one model accepts.
#[derive(Debug)]
pub(crate) struct History {
    reasoning: Reasoning,
    refused_images: RefusedImages,
    has_strict_template: bool,
    images_in_results: bool,
}

impl History {
    /// Creates the rules of a model at an address. Without `images_in_results`, images follow the
    /// results of their turn.
    pub(crate) fn new(config: &LlmConfig, address: &str, images_in_results: bool) -> Self {
        Self {
            reasoning: Reasoning::new(&config.model, address),
            refused_images: RefusedImages::default(),
            has_strict_template: STRICT_TEMPLATES
                .iter()
                .any(|family| is_of_family(&config.model, family)),
            images_in_results,
        }
    }

    /// Returns the request as its provider accepts it.
    pub(crate) fn acceptable(&self, request: &LlmRequest) -> LlmRequest {
        let mut messages = Vec::with_capacity(request.messages.len());
        let mut ids = CallIds::new(self.has_strict_template);
        let mut rest = request.messages.as_slice();
        while let Some((message, others)) = rest.split_first() {
            rest = others;
            match message {
                ChatMessage::System(_) => messages.push(message.clone()),
                ChatMessage::User(parts) => self.push_user(&mut messages, parts.clone()),
                ChatMessage::Assistant(message) => {
                    let is_result =
                        |message: &ChatMessage| matches!(message, ChatMessage::ToolResult { .. });
                    let count = rest.iter().take_while(|message| is_result(message)).count();
                    let (results, others) = rest.split_at(count);
                    rest = others;
                    self.push_response(&mut messages, message, results, &mut ids);
                }
                // It belongs to no call.
                ChatMessage::ToolResult { .. } => {}
            }
        }
        end_with_user(&mut messages);
        LlmRequest {
            messages,
            tools: request.tools.iter().filter_map(repaired_tool).collect(),
        }
    }

    /// Completes a response to a request: its calls have different ids and the names of tools, and
    /// its fields a writer.
    pub(crate) fn complete(&self, response: &mut ModelResponse, request: &LlmRequest) {
        calls::make_ids_unique(&mut response.message);
        calls::for_each_call(&mut response.message, |_, call| {
            let tool = calls::find_tool(&call.name, &request.tools);
            if let Some(tool) = tool {
                call.name.clone_from(&tool.name);
                schema::restore_arguments(&mut call.arguments, &tool.parameters);
            }
        });
        self.reasoning.sign(&mut response.message);
    }

    /// Records why a history was refused. Returns whether the next request differs.
    pub(crate) fn learn(&self, refusal: HistoryRefusal, request: &LlmRequest) -> bool {
        match refusal {
            HistoryRefusal::Image => self.refused_images.learn(request),
            HistoryRefusal::Reasoning => self.reasoning.learn_refused(request),
            HistoryRefusal::NoReasoning => self.reasoning.learn_required(),
        }
    }

    /// Adds a message of the user to the one before it, if that is the user's too: many templates
    /// require alternating roles. A blank message is left out.
    fn push_user(&self, messages: &mut Vec<ChatMessage>, mut parts: Vec<MessagePart>) {
        self.refused_images.replace_in(&mut parts);
        parts.retain(|part| !matches!(part, MessagePart::Text(text) if text.trim().is_empty()));
        if parts.is_empty() {
            return;
        }
        match messages.last_mut() {
            Some(ChatMessage::User(last)) => return last.extend(parts),
            Some(ChatMessage::ToolResult { .. }) if self.has_strict_template => {
                let text = BRIDGE.to_owned();
                messages.push(ChatMessage::Assistant(AssistantMessage {
                    text,
                    ..Default::default()
                }));
            }
            _ => {}
        }
        messages.push(ChatMessage::User(parts));
    }

    /// Adds a message of the model and one result for each of its calls. An empty message is left
    /// out.
    fn push_response(
        &self,
        messages: &mut Vec<ChatMessage>,
        message: &AssistantMessage,
        results: &[ChatMessage],
        ids: &mut CallIds,
    ) {
        let mut sent = self.reasoning.of_this_model(message);
        if is_empty(&sent) {
            return;
        }
        ids.replace(&mut sent);
        calls::clean(&mut sent);
        end_with_user(messages);
        let mut images = Vec::new();
        let mut answers = Vec::with_capacity(sent.tool_calls.len());
        let mut results: Vec<&ChatMessage> = results.iter().collect();
        for (original, call) in message.tool_calls.iter().zip(&sent.tool_calls) {
            let mut parts = take_result(&mut results, &original.id)
                .unwrap_or_else(|| vec![text_part(NO_RESULT)]);
            self.refused_images.replace_in(&mut parts);
            if !self.images_in_results {
                images.extend(parts.extract_if(.., |part| matches!(part, MessagePart::Image(_))));
            }
            let (call_id, name) = (call.id.clone(), call.name.clone());
            answers.push(ChatMessage::ToolResult {
                call_id,
                name,
                parts,
            });
        }
        messages.push(ChatMessage::Assistant(sent));
        messages.extend(answers);
        if !images.is_empty() {
            images.insert(0, text_part(MOVED_IMAGES));
            self.push_user(messages, images);
        }
    }
}

/// Adds a turn of the user if none is there to be answered.
fn end_with_user(messages: &mut Vec<ChatMessage>) {
    if !matches!(
        messages.last(),
        Some(ChatMessage::User(_) | ChatMessage::ToolResult { .. })
    ) {
        messages.push(user(CONTINUE));
    }
}

/// Removes the first result of a call from the results. Logs have calls of one response with the
/// same id.
fn take_result(results: &mut Vec<&ChatMessage>, id: &str) -> Option<Vec<MessagePart>> {
    let is_result = |result: &&ChatMessage| matches!(result, ChatMessage::ToolResult { call_id, .. } if call_id == id);
    match results.remove(results.iter().position(is_result)?) {
        ChatMessage::ToolResult { parts, .. } => Some(parts.clone()),
        _ => None,
    }
}

/// Whether a message has neither text nor calls, nor another block than reasoning, which is refused
/// at the end of a turn.
fn is_empty(message: &AssistantMessage) -> bool {
    let is_content = |block: &Value| match block["type"].as_str() {
        Some("thinking" | "redacted_thinking" | "reasoning" | "text" | "message") | None => false,
        Some(_) => true,
    };
    let has_content = calls::original_blocks(&message.provider_fields)
        .is_some_and(|blocks| blocks.iter().any(is_content));
    message.text.trim().is_empty() && message.tool_calls.is_empty() && !has_content
}

/// Returns a tool that every provider accepts. `None` if it has no name.
fn repaired_tool(tool: &Tool) -> Option<Tool> {
    if tool.name.is_empty() {
        return None;
    }
    Some(Tool {
        parameters: schema::repaired(&tool.parameters),
        ..tool.clone()
    })
}

/// Length of a fingerprint, in hexadecimal digits.
const FINGERPRINT_CHARS: usize = 16;

/// Returns digits that are the same for the same text, on every machine and in every version.
pub(crate) fn fingerprint(text: &str) -> String {
    hex::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..FINGERPRINT_CHARS / 2])
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::User(vec![text_part(text)])
}

fn text_part(text: &str) -> MessagePart {
    MessagePart::Text(text.to_owned())
}
