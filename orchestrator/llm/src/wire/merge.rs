//! Puts JSON together that came in pieces, by its types alone.

use serde_json::{Map, Value};

/// Texts that come whole and may come again: never put together from pieces.
const WHOLE_TEXTS: [&str; 8] =
    ["id", "type", "role", "name", "format", "object", "finish_reason", "native_finish_reason"];

/// Texts are put together, objects merged, lists continued; anything else is replaced. Null says nothing.
pub(crate) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(known)), Value::String(more)) if !WHOLE_TEXTS.contains(&key.as_str()) => {
                known.push_str(&more);
            }
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (Some(Value::Array(known)), Value::Array(more)) => {
                more.into_iter().for_each(|item| continue_list(known, item));
            }
            (Some(Value::String(known)), Value::String(more)) if more.is_empty() && !known.is_empty() => {}
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// An item that goes on where an earlier one stopped is merged into it.
fn continue_list(list: &mut Vec<Value>, item: Value) {
    let Value::Object(item) = item else { return list.push(item) };
    let continued = match item.get("index") {
        Some(index) => {
            list.iter().rposition(|known| known["index"] == *index && known.get("type") == item.get("type"))
        }
        None => list.len().checked_sub(1).filter(|last| is_open_thought(&list[*last]) && is_thought(&item)),
    };
    match continued.and_then(|position| list[position].as_object_mut()) {
        Some(known) => merge(known, item),
        None => list.push(Value::Object(item)),
    }
}

/// Pieces of a thinking block carry no index; its signature ends it.
fn is_open_thought(block: &Value) -> bool {
    block.as_object().is_some_and(|block| is_thought(block) && text(block, "signature").is_empty())
}

fn is_thought(block: &Map<String, Value>) -> bool {
    text(block, "type") == "thinking"
}

pub(crate) fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}
