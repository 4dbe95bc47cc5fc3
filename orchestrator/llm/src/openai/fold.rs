//! Folds the chunks of a stream into one body.
//!
//! Unknown fields are merged by the types of their values.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use protocol::untrusted_json::count_values;
use serde_json::{Map, Value};

use crate::wire::merge::{MAX_OPEN_ITEMS, merge, text};
use crate::wire::{ProgressBuffer, StreamFold};

#[derive(Debug, Default)]
pub(super) struct OpenAiFold {
    body: Map<String, Value>,
    choices: BTreeMap<u64, PartialChoice>,
    done: bool,
}

#[derive(Debug, Default)]
struct PartialChoice {
    message: Map<String, Value>,
    calls: Vec<PartialCall>,
    /// The other fields, such as `finish_reason` and `logprobs`.
    rest: Map<String, Value>,
}

#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    value: Map<String, Value>,
}

impl StreamFold for OpenAiFold {
    fn add(&mut self, chunk: Value, progress: &mut ProgressBuffer) {
        let Value::Object(mut chunk) = chunk else {
            return;
        };
        if let Some(Value::Array(choices)) = chunk.remove("choices") {
            report_text(&choices, progress);
            choices
                .into_iter()
                .for_each(|choice| self.add_choice(choice));
        }
        self.body
            .extend(chunk.into_iter().filter(|(_, value)| !value.is_null()));
    }

    fn end(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_terminal(&self) -> bool {
        let finished = |choice: &PartialChoice| choice.rest.contains_key("finish_reason");
        !self.choices.is_empty() && (self.done || self.choices.values().any(finished))
    }

    fn value_count(&self) -> usize {
        let choices = self.choices.values().map(|choice| {
            let calls = choice.calls.iter().map(|call| count_values(&call.value));
            count_values(&choice.message) + count_values(&choice.rest) + calls.sum::<usize>()
        });
        count_values(&self.body) + choices.sum::<usize>()
    }

    fn finish(mut self: Box<Self>) -> Option<Value> {
        if !self.is_terminal() {
            return None;
        }
        let choices = self
            .choices
            .into_iter()
            .map(|(index, choice)| choice.finish(index))
            .collect();
        self.body.insert("choices".into(), Value::Array(choices));
        Some(Value::Object(self.body))
    }
}

impl OpenAiFold {
    fn add_choice(&mut self, choice: Value) {
        let Value::Object(mut choice) = choice else {
            return;
        };
        let index = choice
            .remove("index")
            .and_then(|index| index.as_u64())
            .unwrap_or_default();
        let folded = self.choices.entry(index).or_default();
        for key in ["delta", "message"] {
            if let Some(Value::Object(delta)) = choice.remove(key) {
                folded.add_delta(delta);
            }
        }
        merge(&mut folded.rest, choice);
    }
}

impl PartialChoice {
    fn add_delta(&mut self, mut delta: Map<String, Value>) {
        if let Some(Value::Array(calls)) = delta.remove("tool_calls") {
            calls.into_iter().for_each(|call| self.add_call(call));
        }
        merge(&mut self.message, delta);
    }

    fn add_call(&mut self, call: Value) {
        let Value::Object(mut value) = call else {
            return;
        };
        let index = value.remove("index").and_then(|index| index.as_u64());
        match self.position(index, &value) {
            Some(position) => merge(&mut self.calls[position].value, value),
            None => self.calls.push(PartialCall { index, value }),
        }
    }

    /// Returns the position of the call that a delta belongs to. `None` for a new call. Some
    /// servers send no index; then each new id is a new call. Some send the same index for all
    /// calls; then a new id with a name is a new call.
    fn position(&self, index: Option<u64>, delta: &Map<String, Value>) -> Option<usize> {
        let id = text(delta, "id");
        let names_a_tool = delta
            .get("function")
            .is_some_and(|function| function["name"].as_str() > Some(""));
        let find = |matches: &dyn Fn(&PartialCall) -> bool| {
            let latest = self.calls.iter().enumerate().rev().take(MAX_OPEN_ITEMS);
            latest
                .into_iter()
                .find(|(_, call)| matches(call))
                .map(|(position, _)| position)
        };
        if index.is_some() {
            let has_same_id =
                |call: &PartialCall| id.is_empty() || ["", id].contains(&text(&call.value, "id"));
            let by_both = find(&|call| call.index == index && has_same_id(call));
            return by_both.or_else(|| find(&|call| call.index == index && !names_a_tool));
        }
        if id.is_empty() {
            return self.calls.len().checked_sub(1).filter(|_| !names_a_tool);
        }
        find(&|call| text(&call.value, "id") == id)
    }

    fn finish(mut self, index: u64) -> Value {
        if !self.calls.is_empty() {
            let calls = self
                .calls
                .into_iter()
                .map(|call| Value::Object(call.value))
                .collect();
            self.message
                .insert("tool_calls".into(), Value::Array(calls));
        }
        self.rest.insert("index".into(), index.into());
        self.rest
            .insert("message".into(), Value::Object(self.message));
        Value::Object(self.rest)
    }
}

/// Reports the text and reasoning of the first choice. Servers have two names for reasoning.
fn report_text(choices: &[Value], progress: &mut ProgressBuffer) {
    let Some(delta) = choices.first().map(|choice| &choice["delta"]) else {
        return;
    };
    let reasoning = delta["reasoning_content"]
        .as_str()
        .or(delta["reasoning"].as_str());
    progress.reasoning(reasoning.unwrap_or_default());
    progress.text(delta["content"].as_str().unwrap_or_default());
}
