//! A model with the wire of the Responses API, and its responses.

use llm::LlmConfig;
use serde_json::{Value, json};

use crate::scene;
use crate::server::{Reply, Server};

/// Returns the configuration for `server`, without retries.
pub(super) fn config(server: &Server) -> LlmConfig {
    LlmConfig {
        model: "openai/responses/gpt-5".into(),
        ..scene::config(server)
    }
}

/// Returns a response as OpenAI sends it without streaming.
pub(super) fn response(output: &Value) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1759489200, "model": "gpt-5-2025-08-07",
        "status": "completed", "error": null, "incomplete_details": null, "instructions": "be good",
        "output": output,
        "usage": {
            "input_tokens": 1000, "input_tokens_details": { "cached_tokens": 600 },
            "output_tokens": 100, "output_tokens_details": { "reasoning_tokens": 64 }, "total_tokens": 1100,
        },
    })
}

pub(super) fn text_item(text: &str) -> Value {
    let part = json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part] })
}

pub(super) fn call_item(call_id: &str) -> Value {
    json!({
        "type": "function_call", "id": format!("fc_{call_id}"), "status": "completed", "call_id": call_id,
        "name": "execute_bash", "arguments": "{\"command\": \"ls 'ü'\"}",
    })
}

pub(super) fn reasoning_item(id: &str, text: &str) -> Value {
    json!({
        "type": "reasoning", "id": id, "summary": [{ "type": "summary_text", "text": text }],
        "encrypted_content": format!("encrypted-{id}"), "status": null,
    })
}

/// Returns the events of the same response as a stream. The last event is terminal.
pub(super) fn events(response: &Value) -> Vec<String> {
    let mut start = response.clone();
    (start["status"], start["output"], start["usage"]) =
        ("in_progress".into(), json!([]), Value::Null);
    let mut events = vec![
        json!({ "type": "response.created", "response": start }),
        json!({ "type": "response.in_progress", "response": start }),
    ];
    for (index, item) in response["output"].as_array().unwrap().iter().enumerate() {
        let event = |name: &str, key: &str, value: &Value| json!({ "type": format!("response.{name}"), "output_index": index, "item_id": item["id"], (key): value });
        let mut added = item.clone();
        added["encrypted_content"] = "partial".into();
        events.push(event("output_item.added", "item", &added));
        events.extend(
            deltas(item)
                .into_iter()
                .map(|(name, delta)| event(name, "delta", delta)),
        );
        events.push(event("output_item.done", "item", item));
    }
    let kind = format!("response.{}", response["status"].as_str().unwrap());
    events.push(json!({ "type": kind, "response": response }));
    events.iter().map(Value::to_string).collect()
}

/// Returns the names and values of an item's deltas.
fn deltas(item: &Value) -> Vec<(&'static str, &Value)> {
    match item["type"].as_str().unwrap() {
        "message" if item["content"][0]["type"] == "refusal" => {
            vec![("refusal.delta", &item["content"][0]["refusal"])]
        }
        "message" => vec![("output_text.delta", &item["content"][0]["text"])],
        "reasoning" => vec![("reasoning_summary_text.delta", &item["summary"][0]["text"])],
        "function_call" => vec![("function_call_arguments.delta", &item["arguments"])],
        _ => vec![],
    }
}

pub(super) fn stream(events: &[String]) -> Reply {
    Reply::stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
}
