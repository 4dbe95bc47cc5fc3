//! Parses a whole body, and converts what some compatible servers send otherwise.

use engine::llm::ModelResponse;
use serde_json::Value;

use crate::wire::decode::{Decoded, Problem, complete};

pub(super) fn decode(mut body: Value) -> Result<Decoded, Problem> {
    let fields = body.as_object_mut().ok_or(Problem::NoObject)?;
    let choices = fields.get_mut("choices").and_then(Value::as_array_mut).ok_or(Problem::NoChoices)?;
    let choice = choices.first_mut().and_then(Value::as_object_mut).ok_or(Problem::NoChoices)?;
    let message = choice.get_mut("message").and_then(Value::as_object_mut).ok_or(Problem::NoMessage)?;
    if let Some(Value::Array(parts)) = message.get("content") {
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        message.insert("content".into(), text.into());
    }
    match message.get_mut("tool_calls") {
        Some(Value::Array(calls)) if !calls.is_empty() => calls.iter_mut().for_each(convert_arguments),
        _ => drop(message.remove("tool_calls")),
    }
    complete(ModelResponse::from_stored(body))
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

    fn choice(message: Value) -> Result<Value, Problem> {
        let body = json!({ "id": "r", "choices": [{ "message": message }] });
        decode(body).map(|decoded| decoded.response.to_stored()["choices"][0]["message"].take())
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
        let id = || decode(json!({ "choices": [{ "message": {} }] })).unwrap().response.id;
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
