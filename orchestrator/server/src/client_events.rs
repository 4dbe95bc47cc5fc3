//! The JSON of events for streams and sockets. The streams of one conversation send the same
//! events, and share their JSON.

use std::io::{self, Write};
use std::sync::Arc;

use conversations::event_json;
use protocol::Event;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::value::RawValue;

use crate::error::ApiError;
use crate::work::run_blocking;

/// Number of events that the cache is prepared for.
const EXPECTED_EVENTS: usize = 4096;

/// Maximum memory of the cached events with their JSON, in bytes.
const MAX_BYTES: u64 = 32 << 20;

/// Maximum length of an event that is written on the thread of its stream, in bytes.
const MAX_SHORT_BYTES: usize = 8 << 10;

/// Memory of a cached event without its texts, in bytes.
const OVERHEAD_BYTES: u64 = 512;

/// The JSON of the events that were sent last. Keyed by the address of the event, which no other
/// event has while it is cached.
pub(crate) struct ClientEvents(Cache<usize, CachedEvent, ByMemory>);

#[derive(Clone)]
struct CachedEvent {
    /// Keeps its address.
    _event: Arc<Event>,
    /// `None` for an event that clients do not see.
    json: Option<Arc<RawValue>>,
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<usize, CachedEvent> for ByMemory {
    fn weight(&self, _: &usize, cached: &CachedEvent) -> u64 {
        // The event has the same texts.
        let length = cached.json.as_ref().map_or(0, |json| json.get().len());
        OVERHEAD_BYTES + 2 * length as u64
    }
}

impl Default for ClientEvents {
    fn default() -> Self {
        Self(Cache::with_weighter(EXPECTED_EVENTS, MAX_BYTES, ByMemory))
    }
}

impl ClientEvents {
    /// Returns an event as clients see it. `None` if they do not. Writes the JSON once for
    /// all streams that ask concurrently, and on a blocking thread if it is long: an event may have
    /// megabytes.
    pub(crate) async fn json(&self, event: &Arc<Event>) -> Option<Arc<RawValue>> {
        if Arc::strong_count(event) == 1 {
            // It was read from the store for one stream.
            return write(Arc::clone(event)).await.ok()?;
        }
        let key = Arc::as_ptr(event).addr();
        let cached = self.0.get_or_insert_async(&key, async {
            let json = write(Arc::clone(event)).await?;
            Ok::<_, ApiError>(CachedEvent {
                _event: Arc::clone(event),
                json,
            })
        });
        cached.await.ok()?.json
    }
}

/// Fails only when the server shuts down.
async fn write(event: Arc<Event>) -> Result<Option<Arc<RawValue>>, ApiError> {
    let is_short = is_short(&event);
    let write = move || event_json(&event).map(Arc::from);
    match is_short {
        true => Ok(write()),
        false => run_blocking(write).await,
    }
}

/// Whether an event is written in less time than another thread needs to start.
fn is_short(event: &Event) -> bool {
    serde_json::to_writer(Budget(MAX_SHORT_BYTES), event).is_ok()
}

/// Counts what is written, up to a maximum.
struct Budget(usize);

impl Write for Budget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let rest = self.0.checked_sub(bytes.len());
        self.0 = rest.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use engine::testing::timestamp;
    use protocol::action::MessageAction;
    use protocol::record::ConversationTitled;
    use protocol::{Action, EventBody, EventId, EventSource, Record};

    use super::*;

    fn event(id: u64, body: impl Into<EventBody>) -> Arc<Event> {
        Arc::new(Event::new(
            EventId(id),
            timestamp(),
            EventSource::User,
            body,
        ))
    }

    fn message(id: u64, length: usize) -> Arc<Event> {
        let message = MessageAction {
            content: "x".repeat(length),
            ..MessageAction::default()
        };
        event(id, Action::from(message))
    }

    #[tokio::test]
    async fn streams_share_the_json_of_an_event() {
        let events = ClientEvents::default();
        let message = message(1, 10);
        let json = async |event| events.json(event).await.unwrap();
        assert!(
            !Arc::ptr_eq(&json(&message).await, &json(&message).await),
            "only one stream has the event"
        );
        let other = Arc::clone(&message);
        let (first, second) = tokio::join!(json(&message), json(&other));
        assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&first, &json(&other).await));
        assert_eq!(
            serde_json::to_value(&*message).unwrap(),
            first.get().parse::<serde_json::Value>().unwrap()
        );
        let record = event(
            2,
            Record::from(ConversationTitled {
                title: "Title".to_owned(),
            }),
        );
        assert!(events.json(&record).await.is_none() && events.json(&record).await.is_none());
    }

    #[tokio::test]
    async fn memory_is_bounded_and_no_event_gets_the_json_of_another() {
        let events = ClientEvents::default();
        for id in 0..700 {
            // Dropped at once, so that addresses would be used again.
            let message = message(id, 40_000);
            let _other = Arc::clone(&message);
            let json = events.json(&message).await.unwrap();
            assert!(json.get().contains(&format!("\"id\":{id},")), "{id}");
            assert!(events.0.weight() <= MAX_BYTES);
        }
    }
}
