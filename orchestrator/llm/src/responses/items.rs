//! Converts the model's messages to items. Pure.

use std::collections::HashSet;

use engine::llm::{AssistantMessage, ToolCall};
use serde_json::{Value, json};

/// The provider field of a message with its original items, if its text and calls do not suffice to
/// build them.
pub(crate) const OUTPUT_FIELD: &str = "openai_output";

/// Converts a message. Sends the original items, unless they lack a call of the message, whose
/// result would be refused.
pub(super) fn to_items(message: &AssistantMessage) -> Vec<Value> {
    let original = message
        .provider_fields
        .0
        .get(OUTPUT_FIELD)
        .and_then(Value::as_array);
    let call_ids: HashSet<&str> = message
        .tool_calls
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    let has_all_calls = |items: &&Vec<Value>| {
        let known: HashSet<&str> = items.iter().filter_map(call_id).collect();
        call_ids.is_subset(&known)
    };
    match original.filter(has_all_calls) {
        Some(items) => without_dropped_calls(items, &call_ids),
        None => build_items(message),
    }
}

/// Omits the calls that the engine has dropped from the message, because a call without a result is
/// refused. Omits the reasoning before them, and at the end of an incomplete response, because
/// reasoning without its following item is refused.
fn without_dropped_calls(items: &[Value], call_ids: &HashSet<&str>) -> Vec<Value> {
    let mut sent = Vec::with_capacity(items.len());
    let mut is_following_sent = false;
    for item in items.iter().rev() {
        if item["type"] != "reasoning" {
            is_following_sent = call_id(item).is_none_or(|id| call_ids.contains(id));
        }
        if is_following_sent {
            sent.push(item.clone());
        }
    }
    sent.reverse();
    sent
}

/// Builds items from the text and the calls of a message.
pub(super) fn build_items(message: &AssistantMessage) -> Vec<Value> {
    let text = (!message.text.is_empty()).then(|| text_item(&message.text));
    text.into_iter()
        .chain(message.tool_calls.iter().map(call_item))
        .collect()
}

/// Returns an item of a response as it is sent back. Omits nulls, the log probabilities, and
/// `status`, which Azure refuses. Omits the id of a call: it is optional, limited in length, and
/// refused without the call's reasoning. `None` if it is not an object.
pub(super) fn normalize_item(mut item: Value) -> Option<Value> {
    remove_nulls(&mut item);
    let fields = item.as_object_mut()?;
    fields.remove("status");
    if fields
        .get("type")
        .is_some_and(|kind| kind == "function_call")
        && let Some(id) = fields.remove("id")
    {
        fields.entry("call_id").or_insert(id);
    }
    for part in fields
        .get_mut("content")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        part.as_object_mut()
            .and_then(|part| part.remove("logprobs"));
    }
    Some(item)
}

/// Whether items have no more than the text and the calls of a message. The id of a text matters
/// only with other items.
pub(super) fn are_built_from(items: &[Value], message: &AssistantMessage) -> bool {
    let without_id = |item: &Value| {
        let mut item = item.clone();
        item.as_object_mut().and_then(|fields| fields.remove("id"));
        item
    };
    items.iter().map(without_id).eq(build_items(message))
}

fn text_item(text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
    json!({ "type": "message", "role": "assistant", "content": content })
}

fn call_item(call: &ToolCall) -> Value {
    json!({ "type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments })
}

/// Returns the id of a call. `None` for other items.
fn call_id(item: &Value) -> Option<&str> {
    (item["type"] == "function_call").then(|| item["call_id"].as_str().unwrap_or_default())
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": "run", "arguments": "{" } })
    }

    fn call_item(id: &str) -> Value {
        json!({ "type": "function_call", "call_id": id, "name": "run", "arguments": "{" })
    }

    fn reasoning(id: &str) -> Value {
        json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": "e" })
    }

    /// Returns the items of a message with these calls.
    fn items(original: &Value, call_ids: &[&str]) -> Value {
        let calls: Vec<Value> = call_ids.iter().map(|id| call(id)).collect();
        let message = json!({ "content": "hi", "tool_calls": calls, OUTPUT_FIELD: original });
        to_items(&AssistantMessage::from_stored(message)).into()
    }

    #[test]
    fn message_of_another_provider_becomes_text_and_calls() {
        let message =
            json!({ "content": "hi", "reasoning_content": "hm", "tool_calls": [call("a")] });
        let expected = json!([text_item("hi"), call_item("a")]);
        assert_eq!(
            Value::from(to_items(&AssistantMessage::from_stored(message))),
            expected
        );
        assert!(to_items(&AssistantMessage::default()).is_empty());
    }

    #[test]
    fn dropped_calls_are_omitted_with_their_reasoning() {
        let commentary =
            json!({ "type": "message", "id": "m", "role": "assistant", "phase": "commentary" });
        let original = json!([
            reasoning("r1"),
            commentary,
            reasoning("r2"),
            reasoning("r3"),
            call_item("a"),
            call_item("b"),
            reasoning("r4"),
        ]);
        let sent = |positions: &[usize]| {
            positions
                .iter()
                .map(|position| original[*position].clone())
                .collect()
        };
        assert_eq!(
            items(&original, &["a", "b"]),
            Value::Array(sent(&[0, 1, 2, 3, 4, 5]))
        );
        assert_eq!(
            items(&original, &["a"]),
            Value::Array(sent(&[0, 1, 2, 3, 4]))
        );
        assert_eq!(items(&original, &["b"]), Value::Array(sent(&[0, 1, 5])));
        assert_eq!(items(&original, &[]), Value::Array(sent(&[0, 1])));
    }

    #[test]
    fn items_are_built_when_the_original_ones_lack_a_call() {
        let original = json!([reasoning("r"), call_item("a")]);
        assert_eq!(
            items(&original, &["a", "b"]),
            json!([text_item("hi"), call_item("a"), call_item("b")])
        );
    }

    #[test]
    fn nulls_and_unneeded_fields_are_removed() {
        let item = json!({
            "type": "function_call", "id": "fc_1", "status": "completed", "call_id": "a", "name": "run",
            "arguments": "{", "namespace": null,
        });
        assert_eq!(normalize_item(item), Some(call_item("a")));
        let item = json!({ "type": "function_call", "id": "fc_1", "call_id": null });
        assert_eq!(
            normalize_item(item),
            Some(json!({ "type": "function_call", "call_id": "fc_1" }))
        );
        let part = json!({ "type": "output_text", "text": "x", "logprobs": [], "annotations": [{ "end": null }] });
        let item = json!({ "type": "message", "id": "m", "content": [part] });
        let part = json!({ "type": "output_text", "text": "x", "annotations": [{}] });
        assert_eq!(
            normalize_item(item),
            Some(json!({ "type": "message", "id": "m", "content": [part] }))
        );
        assert_eq!(normalize_item(json!("x")), None);
    }
}
