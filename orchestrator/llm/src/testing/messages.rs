//! Anthropic's messages. Blocks of thinking are bound to their prefix.

use std::collections::{HashMap, HashSet};

use engine::llm::AssistantMessage;
use serde_json::{Value, json};

use super::{Refusal, check_tools, has_text, is_name, refuse, response_id};

/// Maximum number of cache marks of a request.
const MAX_CACHE_MARKS: usize = 4;

#[derive(Debug)]
pub(super) struct MessagesProvider {
    /// The signatures that it has written, with the prefix of each.
    signatures: HashMap<String, String>,
    /// Number of requests with an earlier block whose prefix had changed.
    pub(super) changed_prefixes: usize,
    /// Number of blocks that were sent back.
    pub(super) returned: usize,
    random: fastrand::Rng,
}

impl MessagesProvider {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            signatures: HashMap::new(),
            changed_prefixes: 0,
            returned: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    pub(super) fn answer(
        &mut self,
        body: &Value,
        message: &AssistantMessage,
    ) -> Result<Value, Refusal> {
        check_tools(
            body["tools"].as_array().into_iter().flatten(),
            "input_schema",
        )?;
        let marks = body.to_string().matches("cache_control").count();
        refuse(
            marks > MAX_CACHE_MARKS,
            "a maximum of 4 blocks with cache_control may be provided",
        )?;
        let turns = body["messages"].as_array().ok_or("no messages")?;
        refuse(
            turns.last().is_none_or(|turn| turn["role"] != "user"),
            "does not support assistant message prefill",
        )?;
        refuse(
            turns[0]["role"] != "user",
            "first message must use the user role",
        )?;
        let mut ids = HashSet::new();
        let mut open: HashSet<&str> = HashSet::new();
        for (number, turn) in turns.iter().enumerate() {
            let blocks = turn["content"].as_array().ok_or("content is no list")?;
            refuse(blocks.is_empty(), "content must be non-empty")?;
            for block in blocks {
                let id = block["id"].as_str().unwrap_or_default();
                match block["type"].as_str().unwrap_or_default() {
                    "text" => refuse(
                        !has_text(&block["text"]),
                        "text content blocks must be non-empty",
                    )?,
                    "tool_use" => {
                        refuse(
                            !is_name(&block["id"]),
                            "tool_use.id: String should match pattern",
                        )?;
                        refuse(!ids.insert(id), "`tool_use` ids must be unique")?;
                        refuse(
                            !block["input"].is_object(),
                            &format!(
                                "tool_use.input: Input should be a valid dictionary, not {block}"
                            ),
                        )?;
                        refuse(
                            !is_name(&block["name"]),
                            "tool_use.name: String should match pattern",
                        )?;
                        open.insert(id);
                    }
                    "tool_result" => {
                        let id = block["tool_use_id"].as_str().unwrap_or_default();
                        refuse(
                            !open.remove(id),
                            "unexpected `tool_use_id` found in `tool_result` blocks",
                        )?;
                    }
                    "thinking" => self.check_thinking(block, &prefix(body, number))?,
                    other => refuse(true, &format!("a block of type {other:?}"))?,
                }
            }
            refuse(
                turn["role"] == "user" && !open.is_empty(),
                "`tool_use` ids were found without `tool_result` blocks",
            )?;
        }
        Ok(self.response(message, prefix(body, turns.len())))
    }

    fn check_thinking(&mut self, block: &Value, prefix: &str) -> Result<(), Refusal> {
        let signature = block["signature"].as_str().unwrap_or_default();
        let known = self
            .signatures
            .get(signature)
            .ok_or("Invalid `signature` in `thinking` block")?;
        let is_changed = known != prefix;
        self.changed_prefixes += usize::from(is_changed);
        self.returned += usize::from(!is_changed);
        refuse(is_changed, "The block is bound to a different conversation")
    }

    fn response(&mut self, message: &AssistantMessage, prefix: String) -> Value {
        let random = &mut self.random;
        let mut content = Vec::new();
        if random.bool() {
            let signature = format!("signature {}", random.u64(..));
            content.push(json!({ "type": "thinking", "thinking": "hm", "signature": signature }));
            self.signatures.insert(signature, prefix);
        }
        if !message.text.is_empty() || random.bool() {
            content.push(json!({ "type": "text", "text": message.text }));
        }
        content.extend(message.tool_calls.iter().map(|call| {
            let input =
                serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
            json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
        }));
        json!({
            "id": response_id(random), "type": "message", "role": "assistant", "model": "claude", "content": content,
            "stop_reason": "end_turn", "usage": { "input_tokens": 1, "output_tokens": 1 },
        })
    }
}

/// Returns what precedes a turn: the system prompt, the tools and the earlier turns, without cache
/// marks.
fn prefix(body: &Value, turn: usize) -> String {
    let mut turns = body["messages"].as_array().cloned().unwrap_or_default();
    turns.truncate(turn);
    let mut prefix = json!([body["system"], body["tools"], turns]);
    remove_marks(&mut prefix);
    prefix.to_string()
}

fn remove_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(remove_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_marks),
        _ => {}
    }
}
