//! Folds the chunks of a stream into the body that the same answer would have had in one piece.
//!
//! Reads no more meaning into the chunks than it needs for that: what is unknown is merged by its JSON type and kept.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Texts that come whole and may come again: never put together from pieces.
const WHOLE_TEXTS: [&str; 8] =
    ["id", "type", "role", "name", "format", "object", "finish_reason", "native_finish_reason"];

#[derive(Debug, Default)]
pub(super) struct Fold {
    body: Map<String, Value>,
    choices: BTreeMap<u64, Choice>,
    done: bool,
}

#[derive(Debug, Default)]
struct Choice {
    message: Map<String, Value>,
    calls: Vec<Call>,
    /// `finish_reason`, `logprobs` and their like.
    rest: Map<String, Value>,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    value: Map<String, Value>,
}

impl Fold {
    pub(super) fn add(&mut self, chunk: Value) {
        let Value::Object(mut chunk) = chunk else { return };
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            choices.into_iter().for_each(|choice| self.add_choice(choice));
        }
        self.body.extend(chunk.into_iter().filter(|(_, value)| !value.is_null()));
    }

    /// The stream said that it is complete.
    pub(super) fn done(&mut self) {
        self.done = true;
    }

    /// Whether nothing but usage can follow.
    pub(super) fn is_terminal(&self) -> bool {
        let finished = |choice: &Choice| choice.rest.contains_key("finish_reason");
        !self.choices.is_empty() && (self.done || self.choices.values().any(finished))
    }

    /// The whole body; nothing when the stream was cut.
    pub(super) fn finish(mut self) -> Option<Value> {
        if !self.is_terminal() {
            return None;
        }
        let choices = self.choices.into_iter().map(|(index, choice)| choice.finish(index)).collect();
        self.body.insert("choices".into(), Value::Array(choices));
        Some(Value::Object(self.body))
    }

    fn add_choice(&mut self, choice: Value) {
        let Value::Object(mut choice) = choice else { return };
        let index = choice.remove("index").and_then(|index| index.as_u64()).unwrap_or_default();
        let folded = self.choices.entry(index).or_default();
        for key in ["delta", "message"] {
            if let Some(Value::Object(delta)) = choice.remove(key) {
                folded.add_delta(delta);
            }
        }
        merge(&mut folded.rest, choice);
    }
}

impl Choice {
    fn add_delta(&mut self, mut delta: Map<String, Value>) {
        if let Some(Value::Array(calls)) = delta.remove("tool_calls") {
            calls.into_iter().for_each(|call| self.add_call(call));
        }
        merge(&mut self.message, delta);
    }

    fn add_call(&mut self, call: Value) {
        let Value::Object(mut value) = call else { return };
        let index = value.remove("index").and_then(|index| index.as_u64());
        match self.position(index, &value) {
            Some(position) => merge(&mut self.calls[position].value, value),
            None => self.calls.push(Call { index, value }),
        }
    }

    /// Which call a piece belongs to; none begins a new one. Some servers send no index: then a new id is a new call.
    /// Some send the same index for all: then a new id beside a name is one.
    fn position(&self, index: Option<u64>, piece: &Map<String, Value>) -> Option<usize> {
        let id = text(piece, "id");
        let names_a_tool = piece.get("function").is_some_and(|function| function["name"].as_str() > Some(""));
        let find = |wanted: &dyn Fn(&Call) -> bool| self.calls.iter().rposition(wanted);
        if index.is_some() {
            let fits = |call: &Call| id.is_empty() || ["", id].contains(&text(&call.value, "id"));
            let by_both = find(&|call| call.index == index && fits(call));
            return by_both.or_else(|| find(&|call| call.index == index && !names_a_tool));
        }
        if id.is_empty() {
            return self.calls.len().checked_sub(1).filter(|_| !names_a_tool);
        }
        find(&|call| text(&call.value, "id") == id)
    }

    fn finish(mut self, index: u64) -> Value {
        if !self.calls.is_empty() {
            let calls = self.calls.into_iter().map(|call| Value::Object(call.value)).collect();
            self.message.insert("tool_calls".into(), Value::Array(calls));
        }
        self.rest.insert("index".into(), index.into());
        self.rest.insert("message".into(), Value::Object(self.message));
        Value::Object(self.rest)
    }
}

/// Texts are put together, objects merged, lists continued; anything else is replaced. Null says nothing.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
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

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}
