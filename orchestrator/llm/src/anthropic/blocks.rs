//! Converts the model's messages to content blocks. Pure.

use engine::llm::{AssistantMessage, ToolCall};
use serde_json::{Value, json};

use crate::arguments::parse_arguments;

/// The provider field of a message with its original blocks, if its text and calls do not suffice
/// to build them.
pub(crate) const CONTENT_FIELD: &str = "anthropic_content";

/// Converts a message. Omits original blocks of calls that the engine has dropped, because a call
/// without a result is rejected.
pub(super) fn to_blocks(message: &AssistantMessage) -> Vec<Value> {
    match message
        .provider_fields
        .0
        .get(CONTENT_FIELD)
        .and_then(Value::as_array)
    {
        Some(original) => {
            let call_ids: Vec<&str> = message
                .tool_calls
                .iter()
                .map(|call| call.id.as_str())
                .collect();
            let is_sent = |block: &&Value| match text_field(block, "type") {
                "tool_use" => call_ids.contains(&text_field(block, "id")),
                "text" => !is_blank(text_field(block, "text")),
                _ => true,
            };
            original
                .iter()
                .filter(is_sent)
                .map(with_valid_input)
                .collect()
        }
        None => build_blocks(message),
    }
}

/// Builds blocks from the text and the calls of a message.
pub(super) fn build_blocks(message: &AssistantMessage) -> Vec<Value> {
    let text = (!is_blank(&message.text)).then(|| text_block(&message.text));
    text.into_iter()
        .chain(message.tool_calls.iter().map(call_block))
        .collect()
}

pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Whether a text is blank. Anthropic rejects those.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn call_block(call: &ToolCall) -> Value {
    json!({
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": parse_arguments(&call.arguments),
    })
}

/// Returns an original block. The input of a call becomes an object, which Anthropic requires.
fn with_valid_input(block: &Value) -> Value {
    let mut block = block.clone();
    if text_field(&block, "type") == "tool_use" && !block["input"].is_object() {
        let text = block["input"]
            .as_str()
            .map_or_else(|| block["input"].to_string(), str::to_owned);
        block["input"] = parse_arguments(&text).into();
    }
    block
}

fn text_field<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(message: Value) -> Value {
        to_blocks(&AssistantMessage::from_stored(message)).into()
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": "run", "arguments": arguments } })
    }

    fn tool_use(id: &str, input: Value) -> Value {
        json!({ "type": "tool_use", "id": id, "name": "run", "input": input })
    }

    #[test]
    fn message_of_another_provider_becomes_text_and_calls() {
        let calls = [
            call("a", r#"{"x":1}"#),
            call("b", ""),
            call("c", "[1]"),
            call("d", r#"{"x":"#),
        ];
        assert_eq!(
            blocks(
                json!({ "role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": calls })
            ),
            json!([
                { "type": "text", "text": "hi" },
                tool_use("a", json!({ "x": 1 })),
                tool_use("b", json!({})),
                tool_use("c", json!({ "malformed": "[1]" })),
                tool_use("d", json!({ "malformed": r#"{"x":"# })),
            ])
        );
    }

    #[test]
    fn empty_message_has_no_blocks() {
        assert_eq!(
            blocks(json!({ "content": null, "tool_calls": null })),
            json!([])
        );
        assert_eq!(blocks(json!({ "content": " \n" })), json!([]));
    }

    #[test]
    fn original_blocks_are_sent_back_except_dropped_calls() {
        let original = json!([
            { "type": "thinking", "thinking": "", "signature": "s" },
            { "type": "text", "text": "" },
            tool_use("a", json!({ "x": 1 })),
            { "type": "redacted_thinking", "data": "d" },
            tool_use("b", json!("{\"x\":")),
            tool_use("c", json!({})),
            { "type": "not_known", "what": [1] },
        ]);
        let message =
            json!({ "tool_calls": [call("a", "{}"), call("b", "")], CONTENT_FIELD: original });
        assert_eq!(
            blocks(message),
            json!([
                original[0],
                original[2],
                original[3],
                tool_use("b", json!({ "malformed": "{\"x\":" })),
                original[6]
            ])
        );
    }
}
