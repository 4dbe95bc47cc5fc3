//! Encodes the engine's messages and tools as items. Pure.

use engine::llm::{ChatMessage, LlmRequest, MessagePart, Tool};
use serde_json::{Map, Value, json};

use super::items;
use crate::config::LlmConfig;
use crate::history::fingerprint;
use crate::wire::NO_VISION;

#[derive(Debug)]
pub(super) struct Encoder {
    vision: bool,
    /// Whether to send a `prompt_cache_key`. Compatible servers may refuse it.
    has_cache_key: bool,
}

impl Encoder {
    pub(super) fn new(config: &LlmConfig) -> Self {
        Self {
            vision: config.sends_images(),
            has_cache_key: config.is_served_by_openai(),
        }
    }

    pub(super) fn encode(&self, request: &LlmRequest) -> Map<String, Value> {
        let input = request
            .messages
            .iter()
            .flat_map(|message| self.items(message))
            .collect();
        let mut body = Map::from_iter([("input".to_owned(), input)]);
        let system: Vec<&str> = request.messages.iter().filter_map(system_text).collect();
        if !system.is_empty() {
            body.insert("instructions".into(), system.join("\n\n").into());
        }
        if !request.tools.is_empty() {
            body.insert("tools".into(), request.tools.iter().map(tool).collect());
        }
        if self.has_cache_key {
            body.insert(
                "prompt_cache_key".into(),
                cache_key(&request.messages).into(),
            );
        }
        body
    }

    fn items(&self, message: &ChatMessage) -> Vec<Value> {
        match message {
            ChatMessage::System(_) => vec![],
            ChatMessage::User(parts) => {
                vec![json!({ "type": "message", "role": "user", "content": self.content(parts) })]
            }
            ChatMessage::Assistant(message) => items::to_items(message),
            ChatMessage::ToolResult { call_id, parts, .. } => {
                vec![
                    json!({ "type": "function_call_output", "call_id": call_id, "output": self.output(parts) }),
                ]
            }
        }
    }

    /// Encodes a result. Text alone is sent as text, because not every server supports parts.
    fn output(&self, parts: &[MessagePart]) -> Value {
        let content = self.content(parts);
        let texts: Option<Vec<&str>> = content.iter().map(|part| part["text"].as_str()).collect();
        match texts {
            Some(texts) => texts.join("\n").into(),
            None => content.into(),
        }
    }

    fn content(&self, parts: &[MessagePart]) -> Vec<Value> {
        let encode = |part: &MessagePart| match part {
            MessagePart::Text(text) => input_text(text),
            MessagePart::Image(_) if !self.vision => input_text(NO_VISION),
            MessagePart::Image(url) => {
                json!({ "type": "input_image", "image_url": url, "detail": "auto" })
            }
        };
        parts.iter().map(encode).collect()
    }
}

/// Returns a key that all requests of a conversation have in common: the prompt and the start of
/// the task, which never leave it. OpenAI recommends the id of the conversation, which a request
/// does not have.
fn cache_key(messages: &[ChatMessage]) -> String {
    let system: Vec<&str> = messages.iter().filter_map(system_text).collect();
    // Later messages may be added to the first one.
    let task = messages.iter().find_map(|message| match message {
        ChatMessage::User(parts) => parts.first(),
        _ => None,
    });
    fingerprint(&format!("{system:?} {task:?}"))
}

fn input_text(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn system_text(message: &ChatMessage) -> Option<&str> {
    match message {
        ChatMessage::System(text) => Some(text),
        _ => None,
    }
}

/// Encodes a tool. Strict schemas require all fields, which the tools' schemas do not.
fn tool(tool: &Tool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": false,
    })
}

#[cfg(test)]
mod tests {
    use engine::llm::AssistantMessage;

    use super::*;

    const PIXEL: &str = "data:image/png;base64,AA==";

    fn encode(change: impl FnOnce(&mut LlmConfig), messages: Vec<ChatMessage>) -> Value {
        let mut config = LlmConfig::new("m");
        change(&mut config);
        let tools = vec![Tool {
            name: "run".into(),
            description: "runs".into(),
            parameters: json!({}),
        }];
        Value::Object(Encoder::new(&config).encode(&LlmRequest { messages, tools }))
    }

    fn text(text: &str) -> MessagePart {
        MessagePart::Text(text.into())
    }

    fn image() -> MessagePart {
        MessagePart::Image(PIXEL.into())
    }

    fn result(parts: Vec<MessagePart>) -> ChatMessage {
        ChatMessage::ToolResult {
            call_id: "a".into(),
            name: "run".into(),
            parts,
        }
    }

    fn image_part() -> Value {
        json!({ "type": "input_image", "image_url": PIXEL, "detail": "auto" })
    }

    #[test]
    fn messages_become_instructions_and_items() {
        let message = json!({
            "content": "hi", "anthropic_content": [{ "type": "thinking" }],
            "tool_calls": [{ "id": "a", "function": { "name": "run", "arguments": "{" } }],
        });
        let messages = vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![text("one"), text("two")]),
            ChatMessage::Assistant(AssistantMessage::from_stored(message)),
            result(vec![text("done"), text("fully")]),
            ChatMessage::Assistant(AssistantMessage::default()),
            ChatMessage::System("be brief".into()),
        ];
        assert_eq!(
            encode(
                |config| config.base_url = Some("http://localhost".into()),
                messages
            ),
            json!({
                "instructions": "be good\n\nbe brief",
                "input": [
                    { "type": "message", "role": "user", "content": [input_text("one"), input_text("two")] },
                    { "type": "message", "role": "assistant", "content": [
                        { "type": "output_text", "text": "hi", "annotations": [] },
                    ] },
                    { "type": "function_call", "call_id": "a", "name": "run", "arguments": "{" },
                    { "type": "function_call_output", "call_id": "a", "output": "done\nfully" },
                ],
                "tools": [{
                    "type": "function", "name": "run", "description": "runs", "parameters": {}, "strict": false,
                }],
            })
        );
    }

    #[test]
    fn requests_of_a_conversation_have_the_same_cache_key() {
        let task = |task: &str| {
            vec![
                ChatMessage::System("be good".into()),
                ChatMessage::User(vec![text(task)]),
            ]
        };
        let key = |messages| encode(|_| (), messages)["prompt_cache_key"].take();
        let longer = [
            task("go"),
            vec![
                result(vec![text("done")]),
                ChatMessage::User(vec![text("more")]),
            ],
        ];
        let joined = vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![text("go"), text("a summary")]),
        ];
        for later in [longer.concat(), joined] {
            assert_eq!(key(later), key(task("go")));
        }
        assert_ne!(key(task("stay")), key(task("go")));
        let elsewhere = encode(
            |config| config.base_url = Some("http://localhost".into()),
            task("go"),
        );
        assert_eq!(elsewhere.get("prompt_cache_key"), None);
    }

    #[test]
    fn results_and_messages_of_the_user_have_images() {
        let messages = vec![
            ChatMessage::User(vec![text("look"), image()]),
            result(vec![text("see"), image()]),
        ];
        let input = encode(|_| (), messages)["input"].take();
        assert_eq!(
            input[0]["content"],
            json!([input_text("look"), image_part()])
        );
        assert_eq!(input[1]["output"], json!([input_text("see"), image_part()]));
    }

    #[test]
    fn note_replaces_an_image_without_vision() {
        let messages = vec![
            ChatMessage::User(vec![image()]),
            result(vec![text("see"), image()]),
        ];
        let input = encode(|config| config.disable_vision = Some(true), messages)["input"].take();
        assert_eq!(input[0]["content"], json!([input_text(NO_VISION)]));
        assert_eq!(input[1]["output"], format!("see\n{NO_VISION}"));
    }
}
