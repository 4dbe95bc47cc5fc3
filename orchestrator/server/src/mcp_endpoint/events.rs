//! Events for the context of a model: pages of a bounded size.

use conversations::Conversations;
use protocol::{ConversationId, Event, EventId};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::stream::first_after;
use crate::view;
use crate::work::run_blocking;

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
    let end = conversations.event_count(id).await?;
    let mut next = first_after(after);
    let (mut events, mut size) = (Vec::new(), 0);
    while next.0 < end && events.len() < limit && size < MAX_PAGE_BYTES {
        let read = conversations
            .read_page(id, next, limit - events.len())
            .await?;
        if read.is_empty() {
            break;
        }
        let shortened = move || {
            read.iter()
                .map(|event| (event.id, to_short_json(event)))
                .collect::<Vec<_>>()
        };
        for (id, short) in run_blocking(shortened).await? {
            if size >= MAX_PAGE_BYTES {
                break;
            }
            next = id.next();
            if let Some((json, length)) = short {
                size += length;
                events.push(json);
            }
        }
    }
    Ok(json!({"events": events, "last_event_id": last_id(next), "has_more": next.0 < end}))
}

/// Returns the id before one; -1 if it is the first.
pub(super) fn last_id(next: EventId) -> i64 {
    i64::try_from(next.0).unwrap_or(i64::MAX) - 1
}

/// Returns an event with its long texts cut off, and its length. `None` for records.
fn to_short_json(event: &Event) -> Option<(Value, usize)> {
    let mut json = view::event(event)?;
    shorten(&mut json);
    let length = json.to_string().len();
    Some((json, length))
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
