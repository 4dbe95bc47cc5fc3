//! From Anthropic's message to the answer in OpenAI's shape, which the decoder that all wires share completes. Pure.

use engine::llm::{AssistantMessage, ModelResponse, ProviderFields, ToolCall};
use serde_json::{Map, Value, json};

use super::blocks;
use crate::wire::decode::{self, Decoded, Problem};
use crate::wire::merge::text;

/// Fields that the answer says in its own words.
const TRANSLATED: [&str; 7] = ["id", "role", "type", "stop_reason", "stop_sequence", "stop_details", "usage"];

pub(super) fn decode(body: Value) -> Result<Decoded, Problem> {
    let Value::Object(mut fields) = body else { return Err(Problem::NoObject) };
    let Some(Value::Array(content)) = fields.remove("content") else { return Err(Problem::NoContent) };
    let id = text(&fields, "id").to_owned();
    let finish_reason = finish_reason(text(&fields, "stop_reason")).to_owned();
    let usage = fields.get("usage").map_or(Value::Null, usage);
    TRANSLATED.into_iter().for_each(|field| drop(fields.remove(field)));
    fields.insert("usage".into(), usage);
    decode::complete(ModelResponse {
        id,
        message: message(content),
        finish_reason,
        choice_fields: ProviderFields::default(),
        provider_fields: ProviderFields(fields),
    })
}

/// In OpenAI's words; V0 and LiteLLM use the same.
fn finish_reason(stop_reason: &str) -> &'static str {
    match stop_reason {
        "tool_use" => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        _ => "stop",
    }
}

/// The blocks are kept too when text and calls alone do not give them back.
fn message(content: Vec<Value>) -> AssistantMessage {
    let blocks: Vec<Value> = content.into_iter().filter_map(without_nulls).collect();
    let texts_of = |kind: &str, field: &str| -> Option<String> {
        let of_kind: Vec<_> = blocks.iter().filter(|block| block["type"] == kind).collect();
        let texts = of_kind.iter().filter_map(|block| block[field].as_str());
        (!of_kind.is_empty()).then(|| texts.collect())
    };
    let mut fields = Map::new();
    if let Some(reasoning) = texts_of("thinking", "thinking") {
        fields.insert("reasoning_content".into(), reasoning.into());
    }
    let mut message = AssistantMessage {
        text: texts_of("text", "text").unwrap_or_default(),
        tool_calls: blocks.iter().filter(|block| block["type"] == "tool_use").map(call).collect(),
        provider_fields: ProviderFields(fields),
    };
    if blocks::rebuilt(&message) != blocks {
        message.provider_fields.0.insert(blocks::CONTENT.into(), blocks.into());
    }
    message
}

fn without_nulls(block: Value) -> Option<Value> {
    let Value::Object(block) = block else { return None };
    Some(Value::Object(block.into_iter().filter(|(_, value)| !value.is_null()).collect()))
}

fn call(block: &Value) -> ToolCall {
    let text = |name: &str| block[name].as_str().unwrap_or_default().to_owned();
    let arguments = match &block["input"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ToolCall { id: text("id"), name: text("name"), arguments, provider_fields: ProviderFields::default() }
}

/// OpenAI counts what was read from and written to the cache among the tokens sent, Anthropic beside them.
fn usage(usage: &Value) -> Value {
    let count = |key: &str| usage[key].as_u64().unwrap_or_default();
    let (read, written) = (count("cache_read_input_tokens"), count("cache_creation_input_tokens"));
    let prompt = count("input_tokens").saturating_add(read).saturating_add(written);
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
        super::decode(body).unwrap().response.message.to_stored().into()
    }

    #[test]
    fn an_answer_has_v0s_shape() {
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
            (usage.prompt_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.per_turn_token),
            (130, 100, 20, 135)
        );
    }

    #[test]
    fn what_the_shape_cannot_hold_is_kept_as_it_came() {
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let (a, b) = (json!({ "type": "text", "text": "a" }), json!({ "type": "text", "text": "b" }));
        let call = json!({ "type": "tool_use", "id": "c", "name": "run", "input": {} });
        for content in [json!([thought, a]), json!([a, b]), json!([call, a]), json!([{ "type": "novel" }])] {
            assert_eq!(decoded(content.clone())[blocks::CONTENT], content);
        }
        for content in [json!([]), json!([a]), json!([call, call]), json!([a, call])] {
            assert_eq!(decoded(content.clone()).get(blocks::CONTENT), None, "{content}");
        }
        assert_eq!(decoded(json!([thought, a]))["reasoning_content"], "hm");
        assert_eq!(decoded(json!([thought, a]))["content"], "a");
    }

    #[test]
    fn a_call_that_is_no_object_stays_the_text_that_it_is() {
        let message = decoded(json!([{ "type": "tool_use", "id": "c", "name": "run", "input": "{\"x\":" }]));
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], "{\"x\":");
    }

    #[test]
    fn what_is_no_answer_says_so() {
        for (body, problem) in [
            (json!("hi"), Problem::NoObject),
            (json!({}), Problem::NoContent),
            (json!({ "content": "hi" }), Problem::NoContent),
            (json!({ "content": [], "stop_reason": "refusal" }), Problem::Filtered),
        ] {
            assert_eq!(super::decode(body).unwrap_err(), problem);
        }
    }
}
