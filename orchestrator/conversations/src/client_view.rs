//! What clients see of a conversation. Records are for Glovebox itself, and causes of failures are for
//! the operator.

use std::sync::Arc;

use protocol::update::{ModelProgress, SandboxStart, StreamMessage};
use protocol::{ConversationUpdate, Event, EventBody, Record};

/// Whether clients see an event.
pub fn is_visible(event: &Event) -> bool {
    !matches!(event.body, EventBody::Record(_))
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
        update => update,
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
        start => start,
    }
}
