//! A model with Anthropic's wire, and its responses.

use llm::LlmConfig;
use serde_json::{Value, json};

use crate::scene;
use crate::server::Server;

/// Returns the configuration for `server`, without retries.
pub(super) fn config(server: &Server) -> LlmConfig {
    LlmConfig {
        model: "anthropic/claude-3-5-haiku-latest".into(),
        ..scene::config(server)
    }
}

/// Returns a message as Anthropic sends it without streaming.
pub(super) fn message(content: &Value) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-3-5-haiku-20241022",
        "content": content, "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {
            "input_tokens": 1000, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000,
            "output_tokens": 100,
        },
    })
}

/// Returns the events of the same message as a stream.
pub(super) fn events(message: &Value) -> Vec<String> {
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = 1.into();
    let mut events = vec![
        json!({ "type": "message_start", "message": start }),
        json!({ "type": "ping" }),
    ];
    for (index, block) in message["content"].as_array().unwrap().iter().enumerate() {
        let (start, deltas) = split_block(block);
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        let delta =
            |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let delta = json!({ "stop_reason": message["stop_reason"], "stop_sequence": null });
    let usage = json!({ "output_tokens": message["usage"]["output_tokens"] });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage }));
    events.push(json!({ "type": "message_stop" }));
    events.iter().map(Value::to_string).collect()
}

fn split_block(block: &Value) -> (Value, Vec<Value>) {
    let mut start = block.clone();
    let halves = |text: &Value| {
        let text = text.as_str().unwrap();
        let (first, second) = text.split_at(text.floor_char_boundary(text.len() / 2));
        [first.to_owned(), second.to_owned()]
    };
    let deltas = match block["type"].as_str().unwrap() {
        "text" => {
            start["text"] = "".into();
            halves(&block["text"])
                .map(|text| json!({ "type": "text_delta", "text": text }))
                .into()
        }
        "thinking" => {
            start["thinking"] = "".into();
            start["signature"] = "".into();
            let deltas = halves(&block["thinking"])
                .map(|text| json!({ "type": "thinking_delta", "thinking": text }));
            let signature = json!({ "type": "signature_delta", "signature": block["signature"] });
            deltas.into_iter().chain([signature]).collect()
        }
        "tool_use" => {
            start["input"] = json!({});
            let input = Value::from(block["input"].to_string());
            halves(&input)
                .map(|json| json!({ "type": "input_json_delta", "partial_json": json }))
                .into()
        }
        _ => vec![],
    };
    (start, deltas)
}
