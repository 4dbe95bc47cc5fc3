//! Decodes a complete response. Pure.

use engine::llm::{AssistantMessage, ModelResponse, ProviderFields, ToolCall};
use serde_json::{Map, Value};

use super::items;
use crate::wire::decoded::{self, DecodeError, Decoded};
use crate::wire::merge::text;

/// Fields that are stored unchanged. The others have a counterpart, or repeat the request with its
/// long instructions and tools.
const KEPT_FIELDS: [&str; 2] = ["model", "service_tier"];

/// Names in a usage, and those of chat completions, which stored events have.
const USAGE_NAMES: [(&str, &str); 4] = [
    ("input_tokens", "prompt_tokens"),
    ("output_tokens", "completion_tokens"),
    ("input_tokens_details", "prompt_tokens_details"),
    ("output_tokens_details", "completion_tokens_details"),
];

pub(super) fn decode(body: Value) -> Result<Decoded, DecodeError> {
    let Value::Object(mut fields) = body else {
        return Err(DecodeError::NotAnObject);
    };
    if matches!(text(&fields, "status"), "failed" | "cancelled") {
        return Err(DecodeError::Failed);
    }
    let Some(Value::Array(output)) = fields.remove("output") else {
        return Err(DecodeError::NoOutput);
    };
    let items: Vec<Value> = output
        .into_iter()
        .filter_map(items::normalize_item)
        .collect();
    let finish_reason = finish_reason(&fields, &items).to_owned();
    decoded::complete_response(ModelResponse {
        id: text(&fields, "id").to_owned(),
        message: message(items),
        finish_reason,
        choice_fields: ProviderFields::default(),
        provider_fields: ProviderFields(provider_fields(fields)),
    })
}

fn provider_fields(mut fields: Map<String, Value>) -> Map<String, Value> {
    let created = fields
        .get("created_at")
        .and_then(Value::as_f64)
        .map(|seconds| seconds as i64);
    let usage = fields.remove("usage").map_or(Value::Null, usage);
    fields.retain(|name, value| KEPT_FIELDS.contains(&name.as_str()) && !value.is_null());
    fields.extend(created.map(|created| ("created".to_owned(), created.into())));
    fields.insert("usage".into(), usage);
    fields
}

/// Renames the fields of a usage. Others, such as the cost of OpenRouter, are kept.
fn usage(mut usage: Value) -> Value {
    if let Value::Object(fields) = &mut usage {
        for (name, stored_name) in USAGE_NAMES {
            if let Some(value) = fields.remove(name) {
                fields.insert(stored_name.to_owned(), value);
            }
        }
    }
    usage
}

/// Returns the reason in terms of chat completions. A refusal of the model is `content_filter`, as
/// on Anthropic's wire.
fn finish_reason(fields: &Map<String, Value>, items: &[Value]) -> &'static str {
    let reason = fields
        .get("incomplete_details")
        .and_then(|details| details["reason"].as_str());
    let has_item = |kind: &str| items.iter().any(|item| item["type"] == kind);
    let is_refusal = || parts(items, "message", &["content"]).any(|part| part["type"] == "refusal");
    match (text(fields, "status"), reason) {
        ("incomplete", Some("content_filter")) => "content_filter",
        ("incomplete", _) => "length",
        _ if is_refusal() => "content_filter",
        _ if has_item("function_call") => "tool_calls",
        _ => "stop",
    }
}

/// Decodes the items, and keeps them if they cannot be built from the text and the calls. A refusal
/// becomes text, so that the user can read it.
fn message(items: Vec<Value>) -> AssistantMessage {
    let texts = items.iter().map(|item| {
        let parts = parts(std::slice::from_ref(item), "message", &["content"]);
        parts
            .filter_map(|part| part["text"].as_str().or(part["refusal"].as_str()))
            .collect()
    });
    let thoughts = parts(&items, "reasoning", &["summary", "content"])
        .filter_map(|part| part["text"].as_str());
    let reasoning = join_paragraphs(thoughts.map(str::to_owned));
    let mut message = AssistantMessage {
        text: join_paragraphs(texts),
        tool_calls: items
            .iter()
            .filter(|item| item["type"] == "function_call")
            .map(call)
            .collect(),
        provider_fields: ProviderFields::default(),
    };
    if !reasoning.is_empty() {
        message
            .provider_fields
            .0
            .insert("reasoning_content".into(), reasoning.into());
    }
    if !items::are_built_from(&items, &message) {
        message
            .provider_fields
            .0
            .insert(items::OUTPUT_FIELD.into(), items.into());
    }
    message
}

/// Returns the parts in these lists of the items of a type.
fn parts<'a>(
    items: &'a [Value],
    kind: &'a str,
    lists: &'a [&'a str],
) -> impl Iterator<Item = &'a Value> {
    let of_kind = items.iter().filter(move |item| item["type"] == kind);
    of_kind.flat_map(move |item| {
        lists
            .iter()
            .filter_map(|list| item[*list].as_array())
            .flatten()
    })
}

fn join_paragraphs(texts: impl Iterator<Item = String>) -> String {
    texts
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n\n")
}

fn call(item: &Value) -> ToolCall {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let arguments = match &item["arguments"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    ToolCall {
        id: text("call_id"),
        name: text("name"),
        arguments,
        provider_fields: ProviderFields::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response(status: &str, output: &Value) -> Result<Value, DecodeError> {
        let body = json!({ "id": "r", "status": status, "output": output });
        super::decode(body).map(|decoded| decoded.response.to_stored()["choices"][0].take())
    }

    fn message(output: &Value) -> Value {
        response("completed", output).unwrap()["message"].take()
    }

    fn text_item(texts: &[&str]) -> Value {
        let part = |text: &&str| json!({ "type": "output_text", "text": text, "annotations": [] });
        let content: Vec<Value> = texts.iter().map(part).collect();
        json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": content })
    }

    fn call_item() -> Value {
        json!({ "type": "function_call", "call_id": "a", "name": "run", "arguments": "{" })
    }

    fn reasoning_item() -> Value {
        let summary = json!([{ "type": "summary_text", "text": "hm" }, { "type": "summary_text", "text": "so" }]);
        json!({ "type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "e" })
    }

    #[test]
    fn response_is_stored_in_v0s_format() {
        let body = json!({
            "id": "resp_1", "object": "response", "created_at": 1759489200.5, "model": "gpt-6-luna",
            "status": "completed", "error": null, "incomplete_details": null, "service_tier": "default",
            "instructions": "long", "tools": [{}], "temperature": 1.0,
            "output": [
                {
                    "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                    "content": [{ "type": "output_text", "text": "I look.", "annotations": [], "logprobs": [] }],
                },
                {
                    "type": "function_call", "id": "fc_1", "status": "completed", "call_id": "a", "name": "run",
                    "arguments": "{",
                },
            ],
            "usage": {
                "input_tokens": 130, "output_tokens": 5, "total_tokens": 135, "cost": 0.5,
                "input_tokens_details": { "cached_tokens": 100, "cache_write_tokens": 20 },
                "output_tokens_details": { "reasoning_tokens": 3 },
            },
        });
        let decoded = super::decode(body).unwrap();
        assert_eq!(
            decoded.response.to_stored(),
            json!({
                "id": "resp_1", "object": "chat.completion", "created": 1759489200, "model": "gpt-6-luna",
                "service_tier": "default",
                "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
                    "role": "assistant", "content": "I look.", "function_call": null,
                    "tool_calls": [{ "id": "a", "type": "function", "function": { "name": "run", "arguments": "{" } }],
                } }],
                "usage": {
                    "prompt_tokens": 130, "completion_tokens": 5, "total_tokens": 135, "cost": 0.5,
                    "prompt_tokens_details": { "cached_tokens": 100, "cache_write_tokens": 20 },
                    "completion_tokens_details": { "reasoning_tokens": 3 },
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
        assert_eq!(decoded.reported_cost, Some(0.5));
    }

    #[test]
    fn items_are_kept_when_they_cannot_be_rebuilt() {
        let (text, call, reasoning) = (text_item(&["a"]), call_item(), reasoning_item());
        let mut commentary = text.clone();
        commentary["phase"] = "commentary".into();
        for output in [
            json!([reasoning, text]),
            json!([call, text]),
            json!([text, text]),
            json!([text_item(&["a", "b"])]),
            json!([commentary, call]),
            json!([{ "type": "novel" }]),
        ] {
            assert_eq!(message(&output)[items::OUTPUT_FIELD], output);
        }
        for output in [
            json!([]),
            json!([text]),
            json!([call]),
            json!([text, call, call]),
        ] {
            assert_eq!(message(&output).get(items::OUTPUT_FIELD), None, "{output}");
        }
    }

    #[test]
    fn text_and_reasoning_are_joined_in_order() {
        let decoded = message(&json!([
            reasoning_item(),
            text_item(&["I ", "look."]),
            { "type": "reasoning", "content": [{ "type": "reasoning_text", "text": "and" }] },
            text_item(&["Done."]),
        ]));
        assert_eq!(decoded["content"], "I look.\n\nDone.");
        assert_eq!(decoded["reasoning_content"], "hm\n\nso\n\nand");
    }

    #[test]
    fn refusal_of_the_model_is_text_and_filters_the_response() {
        let refusal = json!({ "type": "refusal", "refusal": "I cannot." });
        let output = json!([{ "type": "message", "role": "assistant", "content": [refusal] }]);
        let response = response("completed", &output).unwrap();
        assert_eq!(response["finish_reason"], "content_filter");
        assert_eq!(response["message"]["content"], "I cannot.");
        assert_eq!(response["message"][items::OUTPUT_FIELD], output);
    }

    #[test]
    fn finish_reason_is_that_of_chat_completions() {
        for (status, reason, output, expected) in [
            ("completed", None, json!([text_item(&["a"])]), "stop"),
            ("completed", None, json!([call_item()]), "tool_calls"),
            (
                "incomplete",
                Some("max_output_tokens"),
                json!([call_item()]),
                "length",
            ),
            ("incomplete", Some("novel"), json!([]), "length"),
            (
                "incomplete",
                Some("content_filter"),
                json!([text_item(&["a"])]),
                "content_filter",
            ),
        ] {
            let details = json!({ "reason": reason });
            let body = json!({ "id": "r", "status": status, "incomplete_details": details, "output": output });
            assert_eq!(
                super::decode(body).unwrap().response.finish_reason,
                expected,
                "{status} {reason:?}"
            );
        }
    }

    #[test]
    fn invalid_body_is_an_error() {
        for (body, error) in [
            (json!("hi"), DecodeError::NotAnObject),
            (json!({}), DecodeError::NoOutput),
            (json!({ "output": "hi" }), DecodeError::NoOutput),
            (
                json!({ "status": "failed", "output": [] }),
                DecodeError::Failed,
            ),
            (
                json!({ "status": "cancelled", "output": [] }),
                DecodeError::Failed,
            ),
            (
                json!({ "status": "incomplete", "incomplete_details": { "reason": "content_filter" }, "output": [] }),
                DecodeError::Filtered,
            ),
        ] {
            assert_eq!(super::decode(body).unwrap_err(), error);
        }
    }

    #[test]
    fn malformed_items_are_ignored() {
        let output =
            json!([7, null, {}, { "type": "message", "content": 7 }, { "type": "function_call" }]);
        let decoded = message(&output);
        assert_eq!(
            decoded["tool_calls"][0]["function"],
            json!({ "name": "", "arguments": "" })
        );
    }
}
