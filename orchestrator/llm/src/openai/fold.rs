//! Folds the chunks of a stream into the body that the same answer would have had in one piece.
//!
//! Reads no more meaning into the chunks than it needs for that: what is unknown is merged by its JSON type and kept.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::wire::merge::{merge, text};
use crate::wire::{Fold, Pieces};

#[derive(Debug, Default)]
pub(super) struct OpenAiFold {
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

impl Fold for OpenAiFold {
    fn add(&mut self, chunk: Value, pieces: &mut Pieces) {
        let Value::Object(mut chunk) = chunk else { return };
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            show(&choices, pieces);
            choices.into_iter().for_each(|choice| self.add_choice(choice));
        }
        self.body.extend(chunk.into_iter().filter(|(_, value)| !value.is_null()));
    }

    fn end(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_terminal(&self) -> bool {
        let finished = |choice: &Choice| choice.rest.contains_key("finish_reason");
        !self.choices.is_empty() && (self.done || self.choices.values().any(finished))
    }

    fn finish(mut self: Box<Self>) -> Option<Value> {
        if !self.is_terminal() {
            return None;
        }
        let choices = self.choices.into_iter().map(|(index, choice)| choice.finish(index)).collect();
        self.body.insert("choices".into(), Value::Array(choices));
        Some(Value::Object(self.body))
    }
}

impl OpenAiFold {
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

/// The first choice is the answer. Reasoning has two names.
fn show(choices: &[Value], pieces: &mut Pieces) {
    let Some(delta) = choices.first().map(|choice| &choice["delta"]) else { return };
    let reasoning = delta["reasoning_content"].as_str().or(delta["reasoning"].as_str());
    pieces.reasoning(reasoning.unwrap_or_default());
    pieces.text(delta["content"].as_str().unwrap_or_default());
}
