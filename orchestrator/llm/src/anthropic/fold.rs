//! Folds the events of a stream into one message.
//!
//! Deltas of unknown kinds are merged into their block by the types of their values.

use std::collections::BTreeMap;

use protocol::untrusted_json::count_values;
use serde_json::{Map, Value};

use crate::arguments::{MAX_ARGUMENT_VALUES, parse_within};
use crate::wire::merge::{merge, text};
use crate::wire::{ProgressBuffer, StreamFold};

#[derive(Debug, Default)]
pub(super) struct AnthropicFold {
    message: Option<Map<String, Value>>,
    blocks: BTreeMap<u64, PartialBlock>,
    done: bool,
}

#[derive(Debug, Default)]
struct PartialBlock {
    value: Map<String, Value>,
    /// The input of a call so far.
    input: String,
}

impl StreamFold for AnthropicFold {
    fn add(&mut self, event: Value, progress: &mut ProgressBuffer) {
        let Value::Object(mut event) = event else {
            return;
        };
        let mut take = |key| match event.remove(key) {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let (message, block, delta, usage) = (
            take("message"),
            take("content_block"),
            take("delta"),
            take("usage"),
        );
        let index = event
            .get("index")
            .and_then(Value::as_u64)
            .unwrap_or_default();
        match text(&event, "type") {
            "message_start" => self.message = Some(message),
            "content_block_start" => {
                progress.text(text(&block, "text"));
                self.blocks.insert(
                    index,
                    PartialBlock {
                        value: block,
                        input: String::new(),
                    },
                );
            }
            "content_block_delta" => {
                progress.text(text(&delta, "text"));
                progress.reasoning(text(&delta, "thinking"));
                self.blocks.entry(index).or_default().add(delta);
            }
            "message_delta" => self.update_message(delta, usage),
            "message_stop" => self.done = true,
            _ => {}
        }
    }

    fn end(&mut self) {
        self.done = true;
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_terminal(&self) -> bool {
        let stopped = |message: &Map<String, Value>| !text(message, "stop_reason").is_empty();
        self.message
            .as_ref()
            .is_some_and(|message| self.done || stopped(message))
    }

    fn value_count(&self) -> usize {
        let blocks = self.blocks.values().map(|block| count_values(&block.value));
        self.message.as_ref().map_or(0, count_values) + blocks.sum::<usize>()
    }

    fn finish(self: Box<Self>) -> Option<Value> {
        if !self.is_terminal() {
            return None;
        }
        let mut message = self.message?;
        let mut values_left = MAX_ARGUMENT_VALUES;
        message.insert(
            "content".into(),
            self.blocks
                .into_values()
                .map(|block| block.finish(&mut values_left))
                .collect(),
        );
        Some(Value::Object(message))
    }
}

impl AnthropicFold {
    /// Handles a `message_delta`. Its token counts are totals, not differences.
    fn update_message(&mut self, delta: Map<String, Value>, usage: Map<String, Value>) {
        let message = self.message.get_or_insert_default();
        merge(message, delta);
        if let Value::Object(known) = message.entry("usage").or_insert_with(|| Map::new().into()) {
            merge(known, usage);
        }
    }
}

impl PartialBlock {
    fn add(&mut self, mut delta: Map<String, Value>) {
        delta.remove("type");
        if let Some(Value::String(chunk)) = delta.remove("partial_json") {
            self.input.push_str(&chunk);
        }
        if let Some(citation) = delta.remove("citation") {
            delta.insert("citations".into(), vec![citation].into());
        }
        merge(&mut self.value, delta);
    }

    /// Completes the block. Input that is not JSON, or exceeds the limit, stays text.
    fn finish(mut self, values_left: &mut usize) -> Value {
        if !self.input.is_empty() {
            let input = parse_within(self.input, values_left);
            self.value.insert("input".into(), input);
        }
        Value::Object(self.value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fold(events: Vec<Value>) -> Option<Value> {
        let mut fold = Box::<AnthropicFold>::default();
        events
            .into_iter()
            .for_each(|event| fold.add(event, &mut ProgressBuffer::default()));
        fold.finish()
    }

    fn start(index: u64, block: Value) -> Value {
        json!({ "type": "content_block_start", "index": index, "content_block": block })
    }

    fn delta(index: u64, delta: Value) -> Value {
        json!({ "type": "content_block_delta", "index": index, "delta": delta })
    }

    fn content(blocks: Vec<Value>) -> Value {
        let mut events =
            vec![json!({ "type": "message_start", "message": { "id": "m", "content": [] } })];
        events.extend(blocks);
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
        fold(events).unwrap()["content"].take()
    }

    #[test]
    fn events_become_one_message() {
        let usage = json!({ "input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1 });
        let folded = fold(vec![
            json!({ "type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m",
                "stop_reason": null, "usage": usage,
            } }),
            json!({ "type": "ping" }),
            start(0, json!({ "type": "text", "text": "" })),
            delta(0, json!({ "type": "text_delta", "text": "Hel" })),
            delta(0, json!({ "type": "text_delta", "text": "lo" })),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 9 } }),
            json!({ "type": "message_stop" }),
        ]);
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": "Hello" }],
            "usage": { "input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 9 },
        });
        assert_eq!(without_nulls(folded.unwrap()), message);
    }

    fn without_nulls(value: Value) -> Value {
        value
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect::<Map<_, _>>()
            .into()
    }

    #[test]
    fn interleaved_thinking_keeps_order_and_signatures() {
        let folded = content(vec![
            start(
                0,
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
            ),
            delta(0, json!({ "type": "thinking_delta", "thinking": "I " })),
            delta(0, json!({ "type": "thinking_delta", "thinking": "see" })),
            delta(0, json!({ "type": "signature_delta", "signature": "sig" })),
            start(
                1,
                json!({ "type": "tool_use", "id": "a", "name": "run", "input": {} }),
            ),
            delta(1, json!({ "type": "input_json_delta", "partial_json": "" })),
            delta(
                1,
                json!({ "type": "input_json_delta", "partial_json": "{\"x\": " }),
            ),
            delta(
                1,
                json!({ "type": "input_json_delta", "partial_json": "1}" }),
            ),
            start(2, json!({ "type": "redacted_thinking", "data": "d" })),
            start(
                3,
                json!({ "type": "tool_use", "id": "b", "name": "run", "input": {} }),
            ),
            start(
                4,
                json!({ "type": "tool_use", "id": "c", "name": "run", "input": {} }),
            ),
            delta(
                4,
                json!({ "type": "input_json_delta", "partial_json": "{\"x\"" }),
            ),
        ]);
        assert_eq!(
            folded,
            json!([
                { "type": "thinking", "thinking": "I see", "signature": "sig" },
                { "type": "tool_use", "id": "a", "name": "run", "input": { "x": 1 } },
                { "type": "redacted_thinking", "data": "d" },
                { "type": "tool_use", "id": "b", "name": "run", "input": {} },
                { "type": "tool_use", "id": "c", "name": "run", "input": "{\"x\"" },
            ])
        );
    }

    #[test]
    fn unknown_blocks_and_deltas_are_kept() {
        let folded = content(vec![
            start(0, json!({ "type": "novel", "data": "a", "list": [1] })),
            delta(
                0,
                json!({ "type": "novel_delta", "data": "b", "list": [2] }),
            ),
            start(1, json!({ "type": "text", "text": "" })),
            delta(
                1,
                json!({ "type": "citations_delta", "citation": { "cited_text": "x" } }),
            ),
            delta(
                1,
                json!({ "type": "citations_delta", "citation": { "cited_text": "y" } }),
            ),
        ]);
        assert_eq!(
            folded,
            json!([
                { "type": "novel", "data": "ab", "list": [1, 2] },
                { "type": "text", "text": "", "citations": [{ "cited_text": "x" }, { "cited_text": "y" }] },
            ])
        );
    }

    #[test]
    fn stream_without_an_end_has_no_message() {
        let start_event = json!({ "type": "message_start", "message": { "id": "m" } });
        assert_eq!(
            fold(vec![
                start_event.clone(),
                start(0, json!({ "type": "text", "text": "Hel" }))
            ]),
            None
        );
        assert_eq!(fold(vec![json!({ "type": "message_stop" })]), None);
        assert!(fold(vec![start_event, json!({ "type": "message_stop" })]).is_some());
    }
}
