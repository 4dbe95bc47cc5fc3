use serde_json::json;

use super::*;

/// Folds deltas into a message.
fn message(deltas: &[Value]) -> Value {
    let mut fold = Box::<OpenAiFold>::default();
    for delta in deltas {
        fold.add(
            json!({ "choices": [{ "index": 0, "delta": delta }] }),
            &mut ProgressBuffer::default(),
        );
    }
    fold.add(
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
        &mut ProgressBuffer::default(),
    );
    fold.finish().unwrap()["choices"][0]["message"].take()
}

fn calls(deltas: &[Value]) -> Value {
    let deltas: Vec<_> = deltas
        .iter()
        .map(|delta| json!({ "tool_calls": [delta] }))
        .collect();
    message(&deltas)["tool_calls"].take()
}

#[test]
fn chunks_become_one_body() {
    let mut fold = Box::<OpenAiFold>::default();
    for chunk in [
        json!({ "id": "c-1", "created": 7, "model": "m", "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" } }] }),
        json!({ "id": "c-1", "choices": [{ "index": 0, "delta": { "content": "Hel", "refusal": null } }] }),
        json!({ "id": "c-1", "choices": [{ "index": 0, "delta": { "content": "lo" }, "finish_reason": null }] }),
        json!({ "id": "c-1", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
        json!({ "id": "c-1", "choices": [], "usage": { "prompt_tokens": 3 } }),
    ] {
        fold.add(chunk, &mut ProgressBuffer::default());
    }
    assert_eq!(
        fold.finish().unwrap(),
        json!({
            "id": "c-1", "created": 7, "model": "m", "usage": { "prompt_tokens": 3 },
            "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": "Hello" } }],
        })
    );
}

#[test]
fn stream_without_an_end_has_no_body() {
    let mut fold = Box::<OpenAiFold>::default();
    fold.add(
        json!({ "choices": [{ "delta": { "content": "Hel" } }] }),
        &mut ProgressBuffer::default(),
    );
    assert_eq!(fold.finish(), None);
}

#[test]
fn stream_with_an_end_marker_is_complete() {
    let mut fold = Box::<OpenAiFold>::default();
    fold.end();
    assert!(!fold.is_terminal());
    fold.add(
        json!({ "choices": [{ "delta": { "content": "Hi" } }] }),
        &mut ProgressBuffer::default(),
    );
    assert_eq!(
        fold.finish().unwrap()["choices"][0]["message"]["content"],
        "Hi"
    );
}

#[test]
fn calls_are_distinguished_by_index() {
    let folded = calls(&[
        json!({ "index": 0, "id": "a", "type": "function", "function": { "name": "run", "arguments": "" } }),
        json!({ "index": 0, "function": { "arguments": "{\"x\":" } }),
        json!({ "index": 1, "id": "a", "function": { "name": "read", "arguments": "{}" } }),
        json!({ "index": 0, "id": "a", "function": { "name": "run", "arguments": "1}" } }),
    ]);
    assert_eq!(
        folded,
        json!([
            { "id": "a", "type": "function", "function": { "name": "run", "arguments": "{\"x\":1}" } },
            { "id": "a", "function": { "name": "read", "arguments": "{}" } },
        ])
    );
}

#[test]
fn new_id_without_an_index_is_a_new_call() {
    let folded = calls(&[
        json!({ "id": "a", "function": { "name": "run", "arguments": "{" } }),
        json!({ "function": { "arguments": "}" } }),
        json!({ "id": "b", "function": { "name": "run", "arguments": "{}" } }),
        json!({ "id": "b", "function": { "arguments": " " } }),
        json!({ "function": { "name": "run", "arguments": "[]" } }),
    ]);
    let arguments: Vec<_> = folded
        .as_array()
        .unwrap()
        .iter()
        .map(|call| call["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(arguments, ["{}", "{} ", "[]"]);
}

#[test]
fn new_id_and_name_with_a_known_index_is_a_new_call() {
    let folded = calls(&[
        json!({ "index": 0, "id": "a", "function": { "name": "run", "arguments": "{" } }),
        json!({ "index": 0, "id": "other-each-time", "function": { "arguments": "}" } }),
        json!({ "index": 0, "id": "b", "function": { "name": "run", "arguments": "{}" } }),
    ]);
    assert_eq!(folded.as_array().unwrap().len(), 2);
    assert_eq!(folded[0]["function"]["arguments"], "{}");
}

#[test]
fn unknown_fields_are_kept_in_order() {
    let folded = message(&[
        json!({ "reasoning_content": "think" }),
        json!({ "reasoning_content": "ing", "extra": { "a": 1 } }),
        json!({ "extra": { "b": [1] }, "thinking_blocks": [{ "type": "thinking", "thinking": "I " }] }),
        json!({ "thinking_blocks": [{ "type": "thinking", "thinking": "see", "signature": "sig" }] }),
        json!({ "thinking_blocks": [{ "type": "redacted_thinking", "data": "x" }] }),
        json!({ "thinking_blocks": [{ "type": "thinking", "thinking": "more" }] }),
        json!({ "reasoning_details": [{ "type": "reasoning.text", "index": 0, "text": "a" }] }),
        json!({ "reasoning_details": [{ "type": "reasoning.text", "index": 0, "text": "b" }] }),
    ]);
    assert_eq!(
        folded,
        json!({
            "reasoning_content": "thinking",
            "extra": { "a": 1, "b": [1] },
            "thinking_blocks": [
                { "type": "thinking", "thinking": "I see", "signature": "sig" },
                { "type": "redacted_thinking", "data": "x" },
                { "type": "thinking", "thinking": "more" },
            ],
            "reasoning_details": [{ "type": "reasoning.text", "index": 0, "text": "ab" }],
        })
    );
}
