//! Decodes a complete body, and normalizes deviations of compatible servers. Pure.

use engine::llm::ModelResponse;
use serde_json::Value;

use crate::wire::decoded::{DecodeError, Decoded, complete_response};

pub(super) fn decode(mut body: Value) -> Result<Decoded, DecodeError> {
    let fields = body.as_object_mut().ok_or(DecodeError::NotAnObject)?;
    let choices = fields
        .get_mut("choices")
        .and_then(Value::as_array_mut)
        .ok_or(DecodeError::NoChoices)?;
    let choice = choices
        .first_mut()
        .and_then(Value::as_object_mut)
        .ok_or(DecodeError::NoChoices)?;
    let message = choice
        .get_mut("message")
        .and_then(Value::as_object_mut)
        .ok_or(DecodeError::NoMessage)?;
    if let Some(Value::Array(parts)) = message.get("content") {
        let text: String = parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect();
        message.insert("content".into(), text.into());
    }
    match message.get_mut("tool_calls") {
        Some(Value::Array(calls)) if !calls.is_empty() => {
            calls.iter_mut().for_each(convert_arguments);
        }
        _ => drop(message.remove("tool_calls")),
    }
    complete_response(ModelResponse::from_stored(body))
}

/// Converts the arguments of a call to text: older versions of Ollama send the object.
fn convert_arguments(call: &mut Value) {
    match call.pointer_mut("/function/arguments") {
        None | Some(Value::String(_)) => {}
        Some(arguments @ Value::Null) => *arguments = "".into(),
        Some(arguments) => *arguments = arguments.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::metrics::TokenUsage;
    use serde_json::json;

    use super::*;

    fn call(id: &str, name: &str, arguments: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    fn choice(message: Value) -> Result<Value, DecodeError> {
        let body = json!({ "id": "r", "choices": [{ "message": message }] });
        decode(body).map(|decoded| decoded.response.to_stored()["choices"][0]["message"].take())
    }

    #[test]
    fn minimal_response_is_completed_and_unknown_fields_are_kept() {
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
        assert_eq!(decoded.response.to_stored(), expected);
        let usage = TokenUsage {
            prompt_tokens: 10,
            completion_tokens: 2,
            cache_read_tokens: 4,
            cache_write_tokens: 3,
            per_turn_token: 12,
            response_id: "r-1".into(),
            ..TokenUsage::default()
        };
        assert_eq!(
            (decoded.usage, decoded.reported_cost),
            (Some(usage), Some(0.5))
        );
    }

    #[test]
    fn calls_get_missing_ids_and_arguments_become_text() {
        let message = choice(json!({ "content": null, "tool_calls": [
            { "id": "", "function": { "name": "a", "arguments": { "x": 1 } } },
            { "id": "b", "type": "function", "function": { "name": "b", "arguments": "{\"x\":" } },
            { "function": { "name": "c" } },
        ]}));
        let calls = json!([
            call("r-call-1", "a", "{\"x\":1}"),
            call("b", "b", "{\"x\":"),
            call("r-call-3", "c", "")
        ]);
        assert_eq!(message.unwrap()["tool_calls"], calls);
    }

    #[test]
    fn response_without_an_id_gets_a_new_one() {
        let id = || {
            decode(json!({ "choices": [{ "message": {} }] }))
                .unwrap()
                .response
                .id
        };
        assert!(id().starts_with("chatcmpl-"));
        assert_ne!(id(), id());
    }

    #[test]
    fn parts_are_joined_and_an_empty_list_of_calls_is_null() {
        let message = choice(
            json!({ "content": [{ "type": "text", "text": "a" }, { "text": "b" }], "tool_calls": [] }),
        );
        let message = message.unwrap();
        assert_eq!(
            (&message["content"], &message["tool_calls"]),
            (&json!("ab"), &Value::Null)
        );
    }

    #[test]
    fn invalid_body_is_an_error() {
        for (body, error) in [
            (json!("hi"), DecodeError::NotAnObject),
            (json!({}), DecodeError::NoChoices),
            (json!({ "choices": [] }), DecodeError::NoChoices),
            (json!({ "choices": [7] }), DecodeError::NoChoices),
            (json!({ "choices": [{}] }), DecodeError::NoMessage),
            (
                json!({ "choices": [{ "finish_reason": "content_filter", "message": {} }] }),
                DecodeError::Filtered,
            ),
        ] {
            assert_eq!(decode(body).unwrap_err(), error);
        }
    }

    #[test]
    fn usage_is_none_when_the_provider_does_not_count() {
        assert_eq!(
            decode(json!({ "choices": [{ "message": {} }], "usage": null }))
                .unwrap()
                .usage,
            None
        );
    }
}
