//! What clients see of a conversation. Records are for Glovebox itself, and causes of failures are
//! for the operator.

use std::sync::Arc;

use protocol::update::{ModelProgress, SandboxStart, StreamMessage};
use protocol::{ConversationUpdate, Event, EventBody, Observation, ObservationKind, Record};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The pictures of a page, and their types. V0's page shows a picture only if it is named a PNG,
/// and browsers look at its bytes.
const PICTURES: [&str; 2] = ["screenshot", "set_of_marks"];
const JPEG: &str = "data:image/jpeg;base64,";
const PNG: &str = "data:image/png;base64,";

/// Whether clients see an event.
fn is_visible(event: &Event) -> bool {
    !matches!(event.body, EventBody::Record(_))
}

/// Returns an event as V0's JSON. `None` for records, which V0 does not know.
pub fn event_value(event: &Event) -> Option<Value> {
    if !is_visible(event) {
        return None;
    }
    let mut json = serde_json::to_value(event).ok()?;
    if let Value::Object(event) = &mut json {
        event.entry("message").or_insert(Value::Null);
    }
    for picture in PICTURES {
        if let Some(Value::String(url)) = json
            .get_mut("extras")
            .and_then(|extras| extras.get_mut(picture))
            && let Some(data) = url.strip_prefix(JPEG)
        {
            *url = format!("{PNG}{data}");
        }
    }
    Some(json)
}

/// Whether an event has a picture that clients see with another type.
fn has_jpeg(event: &Event) -> bool {
    let EventBody::Observation(Observation {
        kind: ObservationKind::Browse(page),
        ..
    }) = &event.body
    else {
        return false;
    };
    [&page.screenshot, &page.set_of_marks]
        .into_iter()
        .any(|url| url.starts_with(JPEG))
}

/// Like [`event_value`], as text.
pub fn event_json(event: &Event) -> Option<Box<RawValue>> {
    if event.is_canonical() && is_visible(event) && !has_jpeg(event) {
        return to_raw_value(event).ok();
    }
    to_raw_value(&event_value(event)?).ok()
}

/// Returns the message of a client's stream. `None` if the client does not see the update.
pub fn to_client(update: ConversationUpdate<Arc<Event>>) -> Option<StreamMessage<Arc<Event>>> {
    let mut id = None;
    let update = match update {
        ConversationUpdate::Event(event) => {
            id = Some(event.id);
            match &event.body {
                EventBody::Record(Record::ConversationTitled(titled)) => {
                    ConversationUpdate::Title {
                        title: titled.title.clone(),
                    }
                }
                _ if is_visible(&event) => ConversationUpdate::Event(event),
                _ => return None,
            }
        }
        ConversationUpdate::Problem { .. } => return None,
        ConversationUpdate::Start(start) => ConversationUpdate::Start(without_cause(start)),
        ConversationUpdate::Model {
            agent,
            progress:
                ModelProgress::Retrying {
                    attempt,
                    attempts,
                    after_secs,
                    ..
                },
        } => ConversationUpdate::Model {
            agent,
            progress: ModelProgress::Retrying {
                attempt,
                attempts,
                after_secs,
                reason: String::new(),
            },
        },
        update @ (ConversationUpdate::Attached(_)
        | ConversationUpdate::Title { .. }
        | ConversationUpdate::Output { .. }
        | ConversationUpdate::OutputGap { .. }
        | ConversationUpdate::Model {
            progress: ModelProgress::Text { .. } | ModelProgress::Reasoning { .. },
            ..
        }
        | ConversationUpdate::LiveGap {}
        | ConversationUpdate::Waiting(_)
        | ConversationUpdate::Closed {}
        | ConversationUpdate::Error { .. }) => update,
    };
    Some(StreamMessage { id, update })
}

/// Removes the operator's image, and the cause of a failure.
fn without_cause(start: SandboxStart) -> SandboxStart {
    match start {
        SandboxStart::Pulling {
            received_bytes,
            total_bytes,
            ..
        } => SandboxStart::Pulling {
            image: String::new(),
            received_bytes,
            total_bytes,
        },
        SandboxStart::Retrying { after_secs, .. } => SandboxStart::Retrying {
            after_secs,
            reason: String::new(),
        },
        start @ (SandboxStart::Starting {} | SandboxStart::Connecting {}) => start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes can have addresses and credentials of the operator.
    #[test]
    fn clients_see_no_image_and_no_cause() {
        let text = || "registry.internal/secret".to_owned();
        let updates: [ConversationUpdate<Arc<Event>>; 4] = [
            ConversationUpdate::Start(SandboxStart::Pulling {
                image: text(),
                received_bytes: 1,
                total_bytes: None,
            }),
            ConversationUpdate::Start(SandboxStart::Retrying {
                after_secs: 1.0,
                reason: text(),
            }),
            ConversationUpdate::Model {
                agent: None,
                progress: ModelProgress::Retrying {
                    attempt: 2,
                    attempts: 3,
                    after_secs: 1.0,
                    reason: text(),
                },
            },
            ConversationUpdate::Problem { message: text() },
        ];
        let is_seen = updates.map(|update| {
            let message = to_client(update);
            let shown = format!("{message:?}");
            assert!(!shown.contains("secret"), "{shown}");
            message.is_some()
        });
        assert_eq!(is_seen, [true, true, true, false]);
    }
}
