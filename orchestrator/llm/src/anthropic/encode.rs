//! Encodes the engine's messages and tools as Anthropic's JSON. Pure.

use engine::llm::{ChatMessage, LlmRequest, MessagePart, Tool};
use serde_json::{Map, Value, json};

use super::blocks::{self, is_blank, text_block};
use crate::config::LlmConfig;
use crate::wire::NO_VISION;

/// Maximum number of the user's turns with a cache breakpoint. Anthropic allows four breakpoints;
/// the system prompt and the tools have one each. The previous request ended with the older of
/// these turns.
const MAX_MARKED_TURNS: usize = 2;

#[derive(Debug)]
pub(super) struct Encoder {
    vision: bool,
    cache_breakpoints: bool,
}

impl Encoder {
    pub(super) fn new(config: &LlmConfig) -> Self {
        Self {
            vision: config.sends_images(),
            cache_breakpoints: config.caching_prompt,
        }
    }

    pub(super) fn encode(&self, request: &LlmRequest) -> Map<String, Value> {
        let mut system: Vec<Value> = request.messages.iter().filter_map(system_block).collect();
        let mut tools: Vec<Value> = request.tools.iter().map(tool).collect();
        let mut messages = self.messages(&request.messages);
        if self.cache_breakpoints {
            system
                .last_mut()
                .into_iter()
                .chain(tools.last_mut())
                .for_each(add_cache_breakpoint);
            mark_last_turns(&mut messages);
        }
        let fields = [("system", system), ("tools", tools)]
            .into_iter()
            .filter(|(_, list)| !list.is_empty());
        fields
            .chain([("messages", messages)])
            .map(|(name, list)| (name.to_owned(), Value::Array(list)))
            .collect()
    }

    /// Encodes messages as alternating turns. All messages between two turns of the model are one
    /// turn.
    fn messages(&self, messages: &[ChatMessage]) -> Vec<Value> {
        let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
        for message in messages {
            let (role, content) = match message {
                ChatMessage::System(_) => continue,
                ChatMessage::User(parts) => ("user", self.content(parts)),
                ChatMessage::Assistant(message) => ("assistant", blocks::to_blocks(message)),
                ChatMessage::ToolResult { call_id, parts, .. } => {
                    ("user", vec![self.result(call_id, parts)])
                }
            };
            match turns.last_mut() {
                Some((last, turn)) if *last == role => turn.extend(content),
                _ => turns.push((role, content)),
            }
        }
        turns
            .into_iter()
            .map(|(role, content)| json!({ "role": role, "content": content }))
            .collect()
    }

    fn result(&self, id: &str, parts: &[MessagePart]) -> Value {
        json!({ "type": "tool_result", "tool_use_id": id, "content": self.content(parts) })
    }

    fn content(&self, parts: &[MessagePart]) -> Vec<Value> {
        let blocks = parts.iter().map(|part| match part {
            MessagePart::Text(text) => text_block(text),
            MessagePart::Image(_) if !self.vision => text_block(NO_VISION),
            MessagePart::Image(url) => image(url),
        });
        blocks
            .filter(|block| {
                block["type"] != "text" || !is_blank(block["text"].as_str().unwrap_or_default())
            })
            .collect()
    }
}

fn system_block(message: &ChatMessage) -> Option<Value> {
    match message {
        ChatMessage::System(text) => (!is_blank(text)).then(|| text_block(text)),
        _ => None,
    }
}

fn tool(tool: &Tool) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters })
}

/// Encodes an image by its URL, or inline.
fn image(url: &str) -> Value {
    let data = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    let source = match data {
        Some((media_type, data)) => {
            json!({ "type": "base64", "media_type": media_type, "data": data })
        }
        None => json!({ "type": "url", "url": url }),
    };
    json!({ "type": "image", "source": source })
}

fn mark_last_turns(messages: &mut [Value]) {
    let turns = messages
        .iter_mut()
        .rev()
        .filter(|turn| turn["role"] == "user")
        .take(MAX_MARKED_TURNS);
    turns
        .filter_map(|turn| turn["content"].as_array_mut()?.last_mut())
        .for_each(add_cache_breakpoint);
}

fn add_cache_breakpoint(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

#[cfg(test)]
mod tests {
    use engine::llm::AssistantMessage;

    use super::*;

    fn encode(change: impl FnOnce(&mut LlmConfig), request: &LlmRequest) -> Value {
        let mut config = LlmConfig::new("anthropic/claude-x");
        config.caching_prompt = false;
        change(&mut config);
        Value::Object(Encoder::new(&config).encode(request))
    }

    fn messages(messages: Vec<ChatMessage>) -> Value {
        encode(
            |_| (),
            &LlmRequest {
                messages,
                tools: vec![],
            },
        )["messages"]
            .take()
    }

    fn text(text: &str) -> MessagePart {
        MessagePart::Text(text.into())
    }

    fn result(id: &str, parts: Vec<MessagePart>) -> ChatMessage {
        ChatMessage::ToolResult {
            call_id: id.into(),
            name: "run".into(),
            parts,
        }
    }

    fn assistant(message: Value) -> ChatMessage {
        ChatMessage::Assistant(AssistantMessage::from_stored(message))
    }

    fn calls(ids: &[&str]) -> ChatMessage {
        let calls: Vec<_> = ids
            .iter()
            .map(|id| json!({ "id": id, "function": { "name": "run", "arguments": "{}" } }))
            .collect();
        assistant(json!({ "role": "assistant", "content": null, "tool_calls": calls }))
    }

    #[test]
    fn results_and_the_next_message_are_one_turn() {
        let turns = messages(vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![text("go")]),
            calls(&["a", "b"]),
            result("a", vec![text("one")]),
            result("b", vec![text("")]),
            ChatMessage::User(vec![text("and then?")]),
        ]);
        let text = |text| json!({ "type": "text", "text": text });
        let call = |id| json!({ "type": "tool_use", "id": id, "name": "run", "input": {} });
        assert_eq!(
            turns,
            json!([
                { "role": "user", "content": [text("go")] },
                { "role": "assistant", "content": [call("a"), call("b")] },
                { "role": "user", "content": [
                    { "type": "tool_result", "tool_use_id": "a", "content": [text("one")] },
                    { "type": "tool_result", "tool_use_id": "b", "content": [] },
                    text("and then?"),
                ] },
            ])
        );
    }

    #[test]
    fn images_are_sent_inline_or_by_url() {
        let (data, url) = ("data:image/png;base64,AA==", "https://h/i.png");
        let by_bytes = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } });
        let by_address = json!({ "type": "image", "source": { "type": "url", "url": url } });
        let turns = messages(vec![
            ChatMessage::User(vec![MessagePart::Image(url.into())]),
            calls(&["a"]),
            result("a", vec![MessagePart::Image(data.into())]),
        ]);
        assert_eq!(turns[0]["content"], json!([by_address]));
        assert_eq!(turns[2]["content"][0]["content"], json!([by_bytes]));
    }

    #[test]
    fn note_replaces_an_image_without_vision() {
        let request = LlmRequest {
            messages: vec![ChatMessage::User(vec![MessagePart::Image("data:x".into())])],
            tools: vec![],
        };
        let body = encode(|config| config.disable_vision = Some(true), &request);
        assert_eq!(body["messages"][0]["content"][0]["text"], NO_VISION);
    }

    #[test]
    fn system_tools_and_the_last_two_turns_have_cache_breakpoints() {
        let tool = |name: &str| Tool {
            name: name.into(),
            description: "d".into(),
            parameters: json!({}),
        };
        let user = |word: &str| ChatMessage::User(vec![text(word)]);
        let request = LlmRequest {
            messages: vec![
                ChatMessage::System("one".into()),
                ChatMessage::System("two".into()),
                user("first"),
                calls(&["a"]),
                result("a", vec![text("done")]),
                assistant(json!({ "content": "hm" })),
                user("last"),
            ],
            tools: vec![tool("a"), tool("b")],
        };
        let body = encode(|config| config.caching_prompt = true, &request);
        let marked = |pointer: &str| {
            body.pointer(pointer)
                .unwrap()
                .get("cache_control")
                .is_some()
        };
        for pointer in [
            "/system/1",
            "/tools/1",
            "/messages/2/content/0",
            "/messages/4/content/0",
        ] {
            assert!(marked(pointer), "{pointer}");
        }
        assert_eq!(body.to_string().matches("cache_control").count(), 4);
    }
}
