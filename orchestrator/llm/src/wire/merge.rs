//! Merges the chunks of a JSON object by the types of its values.

use serde_json::{Map, Value};

/// Texts that each chunk has completely, and that are not concatenated.
const INDIVISIBLE_TEXTS: [&str; 8] = [
    "id",
    "type",
    "role",
    "name",
    "format",
    "object",
    "finish_reason",
    "native_finish_reason",
];

/// Number of the latest items that a chunk can continue. A search of all would take quadratic time.
pub(crate) const MAX_OPEN_ITEMS: usize = 64;

/// Concatenates texts, merges objects, appends to lists, and replaces other values. Ignores null.
pub(crate) fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (_, Value::Null) => {}
            (Some(Value::String(known)), Value::String(more))
                if !INDIVISIBLE_TEXTS.contains(&key.as_str()) =>
            {
                known.push_str(&more);
            }
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (Some(Value::Array(known)), Value::Array(more)) => {
                more.into_iter().for_each(|item| push_item(known, item));
            }
            (Some(Value::String(known)), Value::String(more))
                if more.is_empty() && !known.is_empty() => {}
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Appends an item, or merges it into the earlier item that it continues.
fn push_item(list: &mut Vec<Value>, item: Value) {
    let Value::Object(item) = item else {
        return list.push(item);
    };
    let continued = match item.get("index") {
        Some(index) => list
            .iter()
            .enumerate()
            .rev()
            .take(MAX_OPEN_ITEMS)
            .find(|(_, known)| known["index"] == *index && known.get("type") == item.get("type"))
            .map(|(position, _)| position),
        None => list
            .len()
            .checked_sub(1)
            .filter(|last| is_unfinished_thinking(&list[*last]) && is_thinking(&item)),
    };
    match continued.and_then(|position| list[position].as_object_mut()) {
        Some(known) => merge(known, item),
        None => list.push(Value::Object(item)),
    }
}

/// Whether the next chunk continues a thinking block. Such chunks have no index; a signature ends
/// the block.
fn is_unfinished_thinking(block: &Value) -> bool {
    block
        .as_object()
        .is_some_and(|block| is_thinking(block) && text(block, "signature").is_empty())
}

fn is_thinking(block: &Map<String, Value>) -> bool {
    text(block, "type") == "thinking"
}

pub(crate) fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}
