//! Decodes Anthropic's message. Pure.

use engine::llm::{AssistantMessage, ModelResponse, ProviderFields, ToolCall};
use serde_json::{Map, Value, json};

use super::blocks;
use crate::wire::decoded::{self, DecodeError, Decoded};
use crate::wire::merge::text;

/// Fields that have a counterpart in the engine's response.
const CONVERTED_FIELDS: [&str; 7] = [
    "id",
    "role",
    "type",
    "stop_reason",
    "stop_sequence",
    "stop_details",
    "usage",
];

pub(super) fn decode(body: Value) -> Result<Decoded, DecodeError> {
    let Value::Object(mut fields) = body else {
        return Err(DecodeError::NotAnObject);
    };
    let Some(Value::Array(content)) = fields.remove("content") else {
        return Err(DecodeError::NoContent);
    };
    if text(&fields, "stop_reason") == "refusal" {
        // Its text is incomplete, and a history with it is refused.
        let category = fields
            .get("stop_details")
            .and_then(|details| details["category"].as_str());
        return Err(DecodeError::Refused(
            category.unwrap_or("refusal").to_owned(),
        ));
    }
    let id = text(&fields, "id").to_owned();
    let finish_reason = finish_reason(text(&fields, "stop_reason")).to_owned();
    let usage = fields.get("usage").map_or(Value::Null, usage);
    CONVERTED_FIELDS
        .into_iter()
        .for_each(|field| drop(fields.remove(field)));
    fields.insert("usage".into(), usage);
    decoded::complete_response(ModelResponse {
        id,
        message: message(content),
        finish_reason,
        choice_fields: ProviderFields::default(),
        provider_fields: ProviderFields(fields),
    })
}

/// Converts to OpenAI's reasons, which V0 and LiteLLM use too.
fn finish_reason(stop_reason: &str) -> &'static str {
    match stop_reason {
        "tool_use" => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        _ => "stop",
    }
}

/// Decodes the blocks, and keeps them if they cannot be built from the text and the calls.
fn message(content: Vec<Value>) -> AssistantMessage {
    let blocks: Vec<Value> = content.into_iter().filter_map(without_nulls).collect();
    let texts_of = |kind: &str, field: &str| -> Option<String> {
        let of_kind: Vec<_> = blocks
            .iter()
            .filter(|block| block["type"] == kind)
            .collect();
        let texts = of_kind.iter().filter_map(|block| block[field].as_str());
        (!of_kind.is_empty()).then(|| texts.collect())
    };
    let mut fields = Map::new();
    if let Some(reasoning) = texts_of("thinking", "thinking") {
        fields.insert("reasoning_content".into(), reasoning.into());
    }
    let mut message = AssistantMessage {
        text: texts_of("text", "text").unwrap_or_default(),
        tool_calls: blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(call)
            .collect(),
        provider_fields: ProviderFields(fields),
    };
    if blocks::build_blocks(&message) != blocks {
        message
            .provider_fields
            .0
            .insert(blocks::CONTENT_FIELD.into(), blocks.into());
    }
    message
}

fn without_nulls(block: Value) -> Option<Value> {
    let Value::Object(block) = block else {
        return None;
    };
    Some(Value::Object(
        block
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect(),
    ))
}

fn call(block: &Value) -> ToolCall {
    let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    let arguments = match &block["input"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ToolCall {
        id: text("id"),
        name: text("name"),
        arguments,
        provider_fields: ProviderFields::default(),
    }
}

/// Converts a usage. OpenAI includes the cached tokens in the prompt tokens, Anthropic does not.
fn usage(usage: &Value) -> Value {
    let count = |key: &str| usage[key].as_u64().unwrap_or_default();
    let (read, written) = (
        count("cache_read_input_tokens"),
        count("cache_creation_input_tokens"),
    );
    let prompt = count("input_tokens")
        .saturating_add(read)
        .saturating_add(written);
    let completion = count("output_tokens");
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt.saturating_add(completion),
        "prompt_tokens_details": { "cached_tokens": read },
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(content: Value) -> Value {
        let body = json!({ "id": "m", "content": content, "stop_reason": "end_turn" });
        super::decode(body)
            .unwrap()
            .response
            .message
            .to_stored()
            .into()
    }

    #[test]
    fn response_is_stored_in_v0s_format() {
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_sequence": null,
            "content": [
                { "type": "text", "text": "I look.", "citations": null },
                { "type": "tool_use", "id": "toolu_1", "name": "run", "input": { "x": 1 } },
            ],
            "stop_reason": "tool_use", "container": { "id": "c" },
            "usage": { "input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 5 },
        });
        let decoded = super::decode(body).unwrap();
        let mut response = decoded.response.to_stored();
        assert!(response["created"].take().is_i64());
        assert_eq!(
            response,
            json!({
                "id": "msg_1", "object": "chat.completion", "created": null, "model": "claude-x",
                "container": { "id": "c" },
                "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
                    "role": "assistant", "content": "I look.", "function_call": null,
                    "tool_calls": [{ "id": "toolu_1", "type": "function", "function": { "name": "run", "arguments": "{\"x\":1}" } }],
                } }],
                "usage": {
                    "prompt_tokens": 130, "completion_tokens": 5, "total_tokens": 135,
                    "prompt_tokens_details": { "cached_tokens": 100 },
                    "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20,
                },
            })
        );
        let usage = decoded.usage.unwrap();
        assert_eq!(
            (
                usage.prompt_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
                usage.per_turn_token
            ),
            (130, 100, 20, 135)
        );
    }

    #[test]
    fn blocks_are_kept_when_they_cannot_be_rebuilt() {
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let (a, b) = (
            json!({ "type": "text", "text": "a" }),
            json!({ "type": "text", "text": "b" }),
        );
        let call = json!({ "type": "tool_use", "id": "c", "name": "run", "input": {} });
        for content in [
            json!([thought, a]),
            json!([a, b]),
            json!([call, a]),
            json!([{ "type": "novel" }]),
        ] {
            assert_eq!(decoded(content.clone())[blocks::CONTENT_FIELD], content);
        }
        for content in [json!([]), json!([a]), json!([call, call]), json!([a, call])] {
            assert_eq!(
                decoded(content.clone()).get(blocks::CONTENT_FIELD),
                None,
                "{content}"
            );
        }
        assert_eq!(decoded(json!([thought, a]))["reasoning_content"], "hm");
        assert_eq!(decoded(json!([thought, a]))["content"], "a");
    }

    #[test]
    fn malformed_input_of_a_call_stays_text() {
        let message =
            decoded(json!([{ "type": "tool_use", "id": "c", "name": "run", "input": "{\"x\":" }]));
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"x\":");
    }

    #[test]
    fn invalid_body_is_an_error() {
        for (body, error) in [
            (json!("hi"), DecodeError::NotAnObject),
            (json!({}), DecodeError::NoContent),
            (json!({ "content": "hi" }), DecodeError::NoContent),
            (
                json!({ "content": [], "stop_reason": "refusal" }),
                DecodeError::Refused("refusal".into()),
            ),
            (
                json!({
                    "content": [{ "type": "text", "text": "To begin" }],
                    "stop_reason": "refusal",
                    "stop_details": { "category": "cyber" },
                }),
                DecodeError::Refused("cyber".into()),
            ),
        ] {
            assert_eq!(super::decode(body).unwrap_err(), error);
        }
    }
}
