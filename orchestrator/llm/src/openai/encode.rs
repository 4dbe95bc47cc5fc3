//! Encodes the engine's messages and tools as OpenAI's JSON. Pure.
//!
//! Stored events have this format too. The model's messages are sent back with all fields of the
//! provider.

use engine::llm::{AssistantMessage, ChatMessage, LlmRequest, MessagePart, Tool};
use serde_json::{Map, Value, json};

use crate::config::LlmConfig;
use crate::wire::NO_VISION;
use crate::{anthropic, responses};

#[derive(Debug)]
pub(super) struct Encoder {
    vision: bool,
    dialect: Dialect,
    cache_breakpoints: bool,
}

/// A variant of OpenAI's format.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Dialect {
    /// Results of tools have no images.
    OpenAi,
    /// Anthropic's models behind LiteLLM or OpenRouter: results of tools can have images, and cache
    /// breakpoints are supported.
    Claude,
}

impl Encoder {
    pub(super) fn new(config: &LlmConfig) -> Self {
        let claude = config.model.to_lowercase().contains("claude");
        Self {
            vision: config.sends_images(),
            dialect: if claude {
                Dialect::Claude
            } else {
                Dialect::OpenAi
            },
            cache_breakpoints: claude && config.caching_prompt,
        }
    }

    pub(super) fn encode(&self, request: &LlmRequest) -> Map<String, Value> {
        let mut messages: Vec<Value> = request
            .messages
            .iter()
            .map(|message| self.message(message))
            .collect();
        if self.cache_breakpoints {
            add_cache_breakpoints(&mut messages);
        }
        let mut body = Map::from_iter([("messages".to_owned(), Value::Array(messages))]);
        if !request.tools.is_empty() {
            body.insert(
                "tools".into(),
                request.tools.iter().map(Tool::to_stored).collect(),
            );
        }
        body
    }

    /// Whether results of tools keep their images, or the notes that replace them.
    pub(super) fn has_images_in_results(&self) -> bool {
        self.dialect == Dialect::Claude || !self.vision
    }

    fn message(&self, message: &ChatMessage) -> Value {
        match message {
            ChatMessage::System(text) => json!({ "role": "system", "content": text }),
            ChatMessage::User(parts) => json!({ "role": "user", "content": self.content(parts) }),
            ChatMessage::Assistant(message) => assistant_message(message),
            ChatMessage::ToolResult {
                call_id,
                name,
                parts,
            } => {
                json!({ "role": "tool", "tool_call_id": call_id, "name": name, "content": self.content(parts) })
            }
        }
    }

    /// Encodes parts. Text alone is sent as text, because not every server supports parts.
    fn content(&self, parts: &[MessagePart]) -> Value {
        let texts: Option<Vec<&str>> = parts
            .iter()
            .map(|part| match part {
                MessagePart::Text(text) => Some(text.as_str()),
                MessagePart::Image(_) => (!self.vision).then_some(NO_VISION),
            })
            .collect();
        match texts {
            Some(texts) => texts.join("\n").into(),
            None => parts.iter().map(encode_part).collect(),
        }
    }
}

fn encode_part(part: &MessagePart) -> Value {
    match part {
        MessagePart::Text(text) => json!({ "type": "text", "text": text }),
        MessagePart::Image(url) => json!({ "type": "image_url", "image_url": { "url": url } }),
    }
}

/// Fields of a message that do not depend on the wire.
const COMMON_FIELDS: [&str; 3] = ["role", "content", "tool_calls"];

/// Fields in which the other wires keep the original content of their messages.
const FOREIGN_FIELDS: [&str; 2] = [anthropic::CONTENT_FIELD, responses::OUTPUT_FIELD];

/// Encodes a message of the model without nulls, which strict servers reject, and without the
/// fields of the other wires.
fn assistant_message(message: &AssistantMessage) -> Value {
    let is_foreign = FOREIGN_FIELDS
        .iter()
        .any(|field| message.provider_fields.0.contains_key(*field));
    let mut message = message.to_stored();
    message.retain(|key, value| {
        !value.is_null() && (!is_foreign || COMMON_FIELDS.contains(&key.as_str()))
    });
    Value::Object(message)
}

/// Marks the system prompt, which includes the tools before it, and the last message that is not
/// the model's, up to which the next request is identical.
fn add_cache_breakpoints(messages: &mut [Value]) {
    if let Some(system) = messages
        .iter_mut()
        .find(|message| message["role"] == "system")
    {
        add_cache_breakpoint(system);
    }
    let is_input = |message: &&mut Value| message["role"] == "user" || message["role"] == "tool";
    if let Some(last) = messages.iter_mut().rfind(is_input) {
        add_cache_breakpoint(last);
    }
}

/// Marks a message: a result itself, as LiteLLM expects it, or the last part of another message.
fn add_cache_breakpoint(message: &mut Value) {
    let ephemeral = json!({ "type": "ephemeral" });
    if message["role"] == "tool" {
        message["cache_control"] = ephemeral;
        return;
    }
    if let Some(text) = message["content"].as_str().map(str::to_owned) {
        message["content"] = json!([{ "type": "text", "text": text }]);
    }
    if let Some(part) = message["content"]
        .as_array_mut()
        .and_then(|parts| parts.last_mut())
    {
        part["cache_control"] = ephemeral;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIXEL: &str = "data:image/png;base64,AA==";

    fn encode(change: impl FnOnce(&mut LlmConfig), messages: Vec<ChatMessage>) -> Value {
        let mut config = LlmConfig::new("m");
        change(&mut config);
        let request = LlmRequest {
            messages,
            tools: vec![],
        };
        Encoder::new(&config).encode(&request)["messages"].take()
    }

    fn text(text: &str) -> MessagePart {
        MessagePart::Text(text.into())
    }

    fn image() -> MessagePart {
        MessagePart::Image(PIXEL.into())
    }

    fn result(call_id: &str, parts: Vec<MessagePart>) -> ChatMessage {
        ChatMessage::ToolResult {
            call_id: call_id.into(),
            name: "run".into(),
            parts,
        }
    }

    fn image_part() -> Value {
        json!({ "type": "image_url", "image_url": { "url": PIXEL } })
    }

    #[test]
    fn messages_keep_their_order_and_text_stays_text() {
        let message = json!({
            "role": "assistant", "content": null, "function_call": null, "thinking_blocks": [{ "signature": "s" }],
            "tool_calls": [{ "id": "a", "type": "function", "function": { "name": "run", "arguments": "{" } }],
        });
        let messages = vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![text("one"), text("two")]),
            ChatMessage::Assistant(AssistantMessage::from_stored(message.clone())),
            result("a", vec![text("done")]),
        ];
        assert_eq!(
            encode(|_| (), messages),
            json!([
                { "role": "system", "content": "be good" },
                { "role": "user", "content": "one\ntwo" },
                { "role": "assistant", "thinking_blocks": [{ "signature": "s" }], "tool_calls": message["tool_calls"] },
                { "role": "tool", "tool_call_id": "a", "name": "run", "content": "done" },
            ])
        );
    }

    #[test]
    fn only_common_fields_of_the_other_wires_are_sent() {
        for field in ["anthropic_content", "openai_output"] {
            let message = json!({ "role": "assistant", "content": "hi", "reasoning_content": "hm", (field): [] });
            let encoded = encode(
                |_| (),
                vec![ChatMessage::Assistant(AssistantMessage::from_stored(
                    message,
                ))],
            );
            assert_eq!(encoded, json!([{ "role": "assistant", "content": "hi" }]));
        }
    }

    #[test]
    fn results_for_claude_have_images_and_cache_breakpoints() {
        let messages = vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![text("look"), image()]),
            result("a", vec![image()]),
        ];
        assert_eq!(
            encode(
                |config| config.model = "litellm_proxy/Claude-x".into(),
                messages
            ),
            json!([
                { "role": "system", "content": [{ "type": "text", "text": "be good", "cache_control": { "type": "ephemeral" } }] },
                { "role": "user", "content": [{ "type": "text", "text": "look" }, image_part()] },
                { "role": "tool", "tool_call_id": "a", "name": "run", "content": [image_part()], "cache_control": { "type": "ephemeral" } },
            ])
        );
    }

    #[test]
    fn no_cache_breakpoints_are_sent_when_caching_is_disabled() {
        let change = |config: &mut LlmConfig| {
            config.model = "claude".into();
            config.caching_prompt = false;
        };
        assert_eq!(
            encode(change, vec![ChatMessage::System("x".into())])[0]["content"],
            "x"
        );
    }

    #[test]
    fn note_replaces_an_image_without_vision() {
        let messages = vec![
            ChatMessage::User(vec![text("look"), image()]),
            result("a", vec![image()]),
        ];
        let encoded = encode(|config| config.disable_vision = Some(true), messages);
        assert_eq!(encoded[0]["content"], format!("look\n{NO_VISION}"));
        assert_eq!(encoded[1]["content"], NO_VISION);
        assert_eq!(encoded.as_array().unwrap().len(), 2);
    }
}
