//! Folds the events of a stream into one response.
//!
//! Items are taken complete from their last event: some servers send an empty `output` at the end.
//! Deltas are only reported.

use std::collections::BTreeMap;

use protocol::untrusted_json::{count, count_values};
use serde_json::{Map, Value};

use crate::wire::merge::text;
use crate::wire::{ProgressBuffer, StreamFold};

#[derive(Debug, Default)]
pub(super) struct ResponsesFold {
    /// The complete items by their positions in the output.
    items: BTreeMap<u64, Value>,
    /// The response of the terminal event.
    response: Option<Map<String, Value>>,
    done: bool,
}

impl StreamFold for ResponsesFold {
    fn add(&mut self, event: Value, progress: &mut ProgressBuffer) {
        let Value::Object(mut event) = event else {
            return;
        };
        let index = |name| event.get(name).and_then(Value::as_u64);
        match text(&event, "type") {
            "response.output_text.delta" | "response.refusal.delta" => {
                progress.text(text(&event, "delta"));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                progress.reasoning(text(&event, "delta"));
            }
            "response.reasoning_summary_part.added" if index("summary_index") > Some(0) => {
                progress.reasoning("\n\n");
            }
            "response.output_item.done" => {
                self.add_item(
                    index("output_index"),
                    event.remove("item").unwrap_or_default(),
                );
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                if let Some(Value::Object(response)) = event.remove("response") {
                    self.response = Some(response);
                }
            }
            _ => {}
        }
    }

    /// Handles the `[DONE]` that proxies send. The terminal event precedes it.
    fn end(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done || self.is_terminal()
    }

    fn is_terminal(&self) -> bool {
        self.response.is_some()
    }

    fn value_count(&self) -> usize {
        let response = self.response.as_ref().map_or(0, count_values);
        response + self.items.values().map(count).sum::<usize>()
    }

    fn finish(self: Box<Self>) -> Option<Value> {
        let mut response = self.response?;
        let output_length = response
            .get("output")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        if output_length <= self.items.len() {
            response.insert("output".into(), self.items.into_values().collect());
        }
        Some(Value::Object(response))
    }
}

impl ResponsesFold {
    /// Adds a complete item. llama.cpp sends no index.
    fn add_item(&mut self, index: Option<u64>, item: Value) {
        let next = self
            .items
            .last_key_value()
            .map_or(0, |(last, _)| last.saturating_add(1));
        self.items.insert(index.unwrap_or(next), item);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fold(events: &[Value]) -> Option<Value> {
        let mut fold = Box::<ResponsesFold>::default();
        for event in events {
            assert!(!fold.is_done(), "{event} follows the end");
            fold.add(event.clone(), &mut ProgressBuffer::default());
        }
        fold.finish()
    }

    fn done(index: Option<u64>, item: &str) -> Value {
        json!({ "type": "response.output_item.done", "output_index": index, "item": item })
    }

    fn completed(output: &[&str]) -> Value {
        json!({ "type": "response.completed", "response": { "id": "r", "output": output } })
    }

    #[test]
    fn items_are_ordered_by_their_index() {
        let folded = fold(&[
            json!({ "type": "response.created", "response": { "id": "r", "output": [] } }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": "partial" }),
            done(Some(1), "b"),
            done(Some(0), "a"),
            completed(&[]),
        ]);
        assert_eq!(folded, Some(json!({ "id": "r", "output": ["a", "b"] })));
    }

    #[test]
    fn items_without_an_index_keep_their_order() {
        let folded = fold(&[done(None, "a"), done(None, "b"), completed(&[])]);
        assert_eq!(folded.unwrap()["output"], json!(["a", "b"]));
        assert!(fold(&[done(Some(u64::MAX), "a"), done(None, "b"), completed(&[])]).is_some());
    }

    #[test]
    fn last_output_is_used_when_it_has_more_items() {
        // A proxy sends the same index for all items.
        let folded = fold(&[
            done(Some(0), "a"),
            done(Some(0), "b"),
            completed(&["x", "y"]),
        ]);
        assert_eq!(folded.unwrap()["output"], json!(["x", "y"]));
        assert_eq!(
            fold(&[done(Some(0), "a"), completed(&["x"])]).unwrap()["output"],
            json!(["a"])
        );
    }

    #[test]
    fn stream_without_a_terminal_event_has_no_response() {
        assert_eq!(fold(&[done(Some(0), "a")]), None);
        let mut ended = Box::<ResponsesFold>::default();
        ended.end();
        assert!(ended.is_done());
        assert_eq!(ended.finish(), None);
        for kind in ["response.incomplete", "response.failed"] {
            assert!(fold(&[json!({ "type": kind, "response": {} })]).is_some());
        }
    }
}
