//! Events for the context of a model: pages of a bounded size.

use conversations::{Conversations, SelectedEvents, event_value};
use protocol::{ConversationId, Event, EventId, EventQuery};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::stream::first_after;

/// Maximum length of a text in an event, in characters. Pictures are texts too.
const MAX_TEXT: usize = 8 << 10;

/// Maximum length of the events of a page, in bytes, after which no further event is added.
const MAX_PAGE_BYTES: usize = 256 << 10;

/// Reads a page of the events after one that is known.
pub(super) async fn read_page(
    conversations: &Conversations,
    id: &ConversationId,
    after: i64,
    limit: usize,
) -> Result<Value, ApiError> {
    let query = EventQuery {
        from: first_after(after),
        limit,
        ..EventQuery::default()
    };
    let SelectedEvents {
        events,
        has_more,
        next,
    } = conversations
        .query(id, query, MAX_PAGE_BYTES, to_short_json)
        .await?;
    Ok(json!({"events": events, "last_event_id": last_id(next), "has_more": has_more}))
}

/// Returns the id before one; -1 if it is the first.
pub(super) fn last_id(next: EventId) -> i64 {
    i64::try_from(next.0).unwrap_or(i64::MAX) - 1
}

/// Returns an event with its long texts cut off. `None` for records.
fn to_short_json(event: &Event) -> Option<Box<RawValue>> {
    let mut json = event_value(event)?;
    shorten(&mut json);
    to_raw_value(&json).ok()
}

/// Cuts off long texts.
fn shorten(json: &mut Value) {
    match json {
        Value::String(text) => {
            if let Some((at, _)) = text.char_indices().nth(MAX_TEXT) {
                let rest = text[at..].chars().count();
                text.truncate(at);
                text.push_str(&format!("[{rest} more characters]"));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_off() {
        let mut json = json!({"a": ["é".repeat(MAX_TEXT + 7), "short"], "b": 1});
        shorten(&mut json);
        let long = json["a"][0].as_str().unwrap();
        assert!(
            long.ends_with("é[7 more characters]"),
            "{}",
            &long[long.len() - 40..]
        );
        assert_eq!((&json["a"][1], &json["b"]), (&json!("short"), &json!(1)));
    }
}
