//! The model's own turns: from the message that is kept to the blocks that go back. Pure.

use engine::llm::{AssistantMessage, ToolCall};
use serde_json::{Value, json};

/// Where a message keeps the blocks as they came, when the rest of it does not say the same.
pub(crate) const CONTENT: &str = "anthropic_content";

/// The blocks of a turn. Of what was kept, calls that were taken out of the message are left out: the engine drops those
/// that are too many, and a call without a result is refused.
pub(super) fn of_message(message: &AssistantMessage) -> Vec<Value> {
    match message.provider_fields.0.get(CONTENT).and_then(Value::as_array) {
        Some(kept) => {
            let made: Vec<&str> = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
            let is_sent = |block: &&Value| match text_of(block, "type") {
                "tool_use" => made.contains(&text_of(block, "id")),
                "text" => !is_blank(text_of(block, "text")),
                _ => true,
            };
            kept.iter().filter(is_sent).map(sendable).collect()
        }
        None => rebuilt(message),
    }
}

/// The blocks that a message without blocks of its own stands for: its text, then its calls.
pub(super) fn rebuilt(message: &AssistantMessage) -> Vec<Value> {
    let text = (!is_blank(&message.text)).then(|| text_block(&message.text));
    text.into_iter().chain(message.tool_calls.iter().map(call_block)).collect()
}

pub(super) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// Anthropic refuses texts that say nothing.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Ids of other providers hold what Anthropic does not allow.
pub(super) fn call_id(id: &str) -> String {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
    match id {
        "" => "_".to_owned(),
        id => id.chars().map(|char| if is_allowed(char) { char } else { '_' }).collect(),
    }
}

fn call_block(call: &ToolCall) -> Value {
    json!({
        "type": "tool_use",
        "id": call_id(&call.id),
        "name": call.name,
        "input": input(&call.arguments),
    })
}

/// A block as it came; only the input of a call has to be an object.
fn sendable(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(raw) = block.get("input").and_then(Value::as_str).map(input) {
        block["input"] = raw;
    }
    block
}

/// Arguments that are no object are shown to the model as what it wrote.
fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(input)) => Value::Object(input),
        _ if is_blank(arguments) => json!({}),
        _ => json!({ "malformed": arguments }),
    }
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(message: Value) -> Value {
        of_message(&AssistantMessage::from_stored(message)).into()
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": "run", "arguments": arguments } })
    }

    fn use_of(id: &str, input: Value) -> Value {
        json!({ "type": "tool_use", "id": id, "name": "run", "input": input })
    }

    #[test]
    fn a_message_of_another_provider_becomes_text_and_calls() {
        let calls = [call("a|1", r#"{"x":1}"#), call("b", ""), call("", "[1]"), call("d", r#"{"x":"#)];
        assert_eq!(
            blocks(
                json!({ "role": "assistant", "content": "hi", "reasoning_content": "hm", "tool_calls": calls })
            ),
            json!([
                { "type": "text", "text": "hi" },
                use_of("a_1", json!({ "x": 1 })),
                use_of("b", json!({})),
                use_of("_", json!({ "malformed": "[1]" })),
                use_of("d", json!({ "malformed": r#"{"x":"# })),
            ])
        );
    }

    #[test]
    fn a_message_that_says_nothing_has_no_blocks() {
        assert_eq!(blocks(json!({ "content": null, "tool_calls": null })), json!([]));
        assert_eq!(blocks(json!({ "content": " \n" })), json!([]));
    }

    #[test]
    fn stored_blocks_are_resent_unchanged_except_dropped_calls() {
        let kept = json!([
            { "type": "thinking", "thinking": "", "signature": "s" },
            { "type": "text", "text": "" },
            use_of("a", json!({ "x": 1 })),
            { "type": "redacted_thinking", "data": "d" },
            use_of("b", json!("{\"x\":")),
            use_of("c", json!({})),
            { "type": "not_known", "what": [1] },
        ]);
        let message = json!({ "tool_calls": [call("a", "{}"), call("b", "")], CONTENT: kept });
        assert_eq!(
            blocks(message),
            json!([kept[0], kept[2], kept[3], use_of("b", json!({ "malformed": "{\"x\":" })), kept[6]])
        );
    }
}
