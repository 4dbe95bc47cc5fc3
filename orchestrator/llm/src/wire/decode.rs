//! From a whole body to an answer in the shape that logs keep: V0's `model_response`.
//!
//! Fields that are missing are filled in, what is unknown is kept, and the model's arguments stay the text that they
//! are, well formed or not.

use std::fmt;

use engine::llm::ModelResponse;
use protocol::metrics::TokenUsage;
use serde_json::{Map, Value};
use uuid::Uuid;

/// A whole answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) response: ModelResponse,
    /// Nothing when the provider did not count.
    pub(crate) usage: Option<TokenUsage>,
    /// OpenRouter's price of the call, beside its usage.
    pub(crate) stated_cost: Option<f64>,
}

/// Why a body is not an answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Problem {
    NoObject,
    NoChoices,
    NoMessage,
    /// Anthropic's answer without content.
    NoContent,
    /// There is one, but its content was taken away.
    Filtered,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoObject => "the answer is not a JSON object",
            Self::NoChoices => "the answer has no choices",
            Self::NoMessage => "the answer's first choice has no message",
            Self::NoContent => "the answer has no content",
            Self::Filtered => "the answer was filtered",
        })
    }
}

pub(crate) fn decode(body: Value) -> Result<Decoded, Problem> {
    let Value::Object(mut body) = body else {
        return Err(Problem::NoObject);
    };
    let id = text_or(&body, "id", || format!("chatcmpl-{}", Uuid::now_v7()));
    complete_envelope(&mut body, &id);
    let choices = body.get_mut("choices").and_then(Value::as_array_mut).ok_or(Problem::NoChoices)?;
    complete_choice(choices.first_mut().ok_or(Problem::NoChoices)?, &id)?;
    let usage = body.get("usage").filter(|usage| usage.is_object()).map(|usage| read_usage(usage, id));
    let stated_cost = body["usage"]["cost"].as_f64();
    Ok(Decoded { response: ModelResponse(Value::Object(body)), usage, stated_cost })
}

fn complete_envelope(body: &mut Map<String, Value>, id: &str) {
    body.insert("id".into(), id.into());
    body.insert("object".into(), "chat.completion".into());
    body.entry("created").or_insert_with(|| jiff::Timestamp::now().as_second().into());
    body.entry("model").or_insert_with(|| "".into());
    body.entry("usage").or_insert(Value::Null);
}

fn complete_choice(choice: &mut Value, id: &str) -> Result<(), Problem> {
    let choice = choice.as_object_mut().ok_or(Problem::NoChoices)?;
    choice.entry("index").or_insert_with(|| 0.into());
    choice.entry("finish_reason").or_insert(Value::Null);
    let filtered = choice["finish_reason"] == "content_filter";
    let message = choice.get_mut("message").and_then(Value::as_object_mut).ok_or(Problem::NoMessage)?;
    message.insert("role".into(), "assistant".into());
    for field in ["content", "tool_calls", "function_call"] {
        message.entry(field).or_insert(Value::Null);
    }
    if let Some(parts) = message["content"].as_array() {
        let text = joined(parts);
        message.insert("content".into(), text);
    }
    complete_calls(&mut message["tool_calls"], id);
    if filtered
        && message["content"].as_str().unwrap_or_default().is_empty()
        && message["tool_calls"].is_null()
    {
        return Err(Problem::Filtered);
    }
    Ok(())
}

/// Some servers answer with parts instead of text.
fn joined(parts: &[Value]) -> Value {
    parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>().into()
}

/// An empty list is none. Ids that are missing are made up from the answer's, since results are told apart by them.
fn complete_calls(calls: &mut Value, id: &str) {
    let Some(list) = calls.as_array_mut().filter(|list| !list.is_empty()) else {
        *calls = Value::Null;
        return;
    };
    for (number, call) in list.iter_mut().enumerate() {
        let Value::Object(call) = call else { continue };
        let call_id = text_or(call, "id", || format!("{id}-call-{}", number + 1));
        call.insert("id".into(), call_id.into());
        call.entry("type").or_insert_with(|| "function".into());
        if let Some(Value::Object(function)) = call.get_mut("function") {
            let arguments = match function.remove("arguments") {
                Some(Value::String(text)) => text,
                None | Some(Value::Null) => String::new(),
                Some(other) => other.to_string(), // older Ollama sends the object
            };
            function.insert("arguments".into(), arguments.into());
        }
    }
}

fn text_or(map: &Map<String, Value>, key: &str, or: impl FnOnce() -> String) -> String {
    match map.get(key).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => or(),
    }
}

/// Names of OpenAI, then of Anthropic (through LiteLLM), DeepSeek, OpenRouter.
fn read_usage(usage: &Value, response_id: String) -> TokenUsage {
    let first = |found: [&Value; 3]| found.into_iter().find_map(Value::as_u64).unwrap_or_default();
    let prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or_default();
    let completion_tokens = usage["completion_tokens"].as_u64().unwrap_or_default();
    let details = &usage["prompt_tokens_details"];
    TokenUsage {
        prompt_tokens,
        completion_tokens,
        cache_read_tokens: first([
            &details["cached_tokens"],
            &usage["cache_read_input_tokens"],
            &usage["prompt_cache_hit_tokens"],
        ]),
        cache_write_tokens: first([
            &usage["cache_creation_input_tokens"],
            &details["cache_creation_tokens"],
            &details["cache_write_tokens"],
        ]),
        per_turn_token: prompt_tokens.saturating_add(completion_tokens),
        response_id,
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    fn choice(message: Value) -> Result<Value, Problem> {
        let body = json!({ "id": "r", "choices": [{ "message": message }] });
        decode(body).map(|mut decoded| decoded.response.0["choices"][0]["message"].take())
    }

    #[test]
    fn a_bare_answer_gets_v0s_shape_and_keeps_what_is_unknown() {
        let body = json!({
            "id": "r-1", "created": 5, "model": "m", "system_fingerprint": "f",
            "choices": [{ "message": { "content": "hi", "annotations": [1] }, "finish_reason": "stop" }],
            "usage": {
                "prompt_tokens": 10, "completion_tokens": 2, "cost": 0.5,
                "prompt_tokens_details": { "cached_tokens": 4 }, "cache_creation_input_tokens": 3,
            },
        });
        let decoded = decode(body.clone()).unwrap();
        let mut expected = body;
        expected["object"] = "chat.completion".into();
        expected["choices"][0]["index"] = 0.into();
        expected["choices"][0]["message"] = json!({
            "content": "hi", "annotations": [1], "role": "assistant", "tool_calls": null, "function_call": null,
        });
        assert_eq!(decoded.response.0, expected);
        let usage = TokenUsage {
            prompt_tokens: 10,
            completion_tokens: 2,
            cache_read_tokens: 4,
            cache_write_tokens: 3,
            per_turn_token: 12,
            response_id: "r-1".into(),
            ..TokenUsage::default()
        };
        assert_eq!((decoded.usage, decoded.stated_cost), (Some(usage), Some(0.5)));
    }

    #[test]
    fn calls_without_ids_get_some_and_arguments_are_text() {
        let message = choice(json!({ "content": null, "tool_calls": [
            { "id": "", "function": { "name": "a", "arguments": { "x": 1 } } },
            { "id": "b", "type": "function", "function": { "name": "b", "arguments": "{\"x\":" } },
            { "function": { "name": "c" } },
        ]}));
        let calls =
            json!([call("r-call-1", "a", "{\"x\":1}"), call("b", "b", "{\"x\":"), call("r-call-3", "c", "")]);
        assert_eq!(message.unwrap()["tool_calls"], calls);
    }

    #[test]
    fn an_answer_without_an_id_gets_a_new_one() {
        let id = || decode(json!({ "choices": [{ "message": {} }] })).unwrap().response.id().to_owned();
        assert!(id().starts_with("chatcmpl-"));
        assert_ne!(id(), id());
    }

    #[test]
    fn parts_are_joined_and_an_empty_list_of_calls_is_none() {
        let message = choice(
            json!({ "content": [{ "type": "text", "text": "a" }, { "text": "b" }], "tool_calls": [] }),
        );
        let message = message.unwrap();
        assert_eq!((&message["content"], &message["tool_calls"]), (&json!("ab"), &Value::Null));
    }

    #[test]
    fn what_is_no_answer_says_so() {
        for (body, problem) in [
            (json!("hi"), Problem::NoObject),
            (json!({}), Problem::NoChoices),
            (json!({ "choices": [] }), Problem::NoChoices),
            (json!({ "choices": [7] }), Problem::NoChoices),
            (json!({ "choices": [{}] }), Problem::NoMessage),
            (json!({ "choices": [{ "finish_reason": "content_filter", "message": {} }] }), Problem::Filtered),
        ] {
            assert_eq!(decode(body).unwrap_err(), problem);
        }
    }

    #[test]
    fn a_provider_that_does_not_count_leaves_the_usage_open() {
        assert_eq!(decode(json!({ "choices": [{ "message": {} }], "usage": null })).unwrap().usage, None);
    }
}
