//! The log of one conversation as its owner and its readers hold it.
//!
//! The owner appends to the store and only then moves the head. Readers own nothing but a place: they read from the
//! store up to the head and wait there. A slow reader holds up nobody and loses nothing. Ends for readers when the
//! owner drops the log: what is there is read first.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use protocol::{ConversationId, Event, EventId};
use tokio::sync::watch;

use super::{EventStore, StoreError};

/// How many events are read from the store at once: a page is worth a query, and bounds what a reader holds.
const PAGE: usize = 256;

/// How many pages of a log that is opened are read at once: most of the time is spent making events of text, on every
/// processor that is free.
const READ_AHEAD: usize = 4;

/// The one place that appends to a conversation.
pub struct EventLog {
    store: Arc<dyn EventStore>,
    conversation: ConversationId,
    head: watch::Sender<Head>,
}

/// Where a log ends, and with what: who follows it need not read that from the store.
struct Head {
    end: EventId,
    latest: Arc<[Arc<Event>]>,
}

impl Head {
    /// What is there from `from` on, if it was all appended at once.
    fn since(&self, from: EventId) -> Option<Vec<Event>> {
        let place = self.latest.iter().position(|event| event.id == from)?;
        Some(self.latest.iter().skip(place).map(|event| Event::clone(event)).collect())
    }
}

impl EventLog {
    /// Opens the log of a conversation, empty if it has none, and reads all of it.
    ///
    /// # Errors
    /// What the store's reading can fail with.
    pub async fn open(
        store: Arc<dyn EventStore>,
        conversation: ConversationId,
    ) -> Result<(Self, Vec<Arc<Event>>), StoreError> {
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut is_long = false;
        loop {
            let next = events.len();
            let pages = stream::iter((next..).step_by(PAGE))
                .take(if is_long { usize::MAX } else { 1 })
                .map(|from| store.read(&conversation, EventId(from as u64), PAGE))
                .buffered(READ_AHEAD);
            tokio::pin!(pages);
            while let Some(page) = pages.try_next().await? {
                is_long = page.len() == PAGE;
                events.extend(page.into_iter().map(Arc::new));
                // What was read beyond it does not follow it.
                if !is_long {
                    break;
                }
            }
            if events.len() == next {
                break;
            }
        }
        let end = EventId(events.len() as u64);
        let head = watch::Sender::new(Head { end, latest: Arc::default() });
        Ok((Self { store, conversation, head }, events))
    }

    /// Appends events that follow the head, then shows them to the readers. Returns them as they are kept, which is as
    /// they are read.
    ///
    /// # Errors
    /// What the store's appending can fail with; nothing is shown then.
    pub async fn append(&self, events: Vec<Event>) -> Result<Arc<[Arc<Event>]>, StoreError> {
        let events = self.store.as_stored(events)?;
        let Some(end) = events.last().map(|last| last.id.next()) else { return Ok(Arc::default()) };
        self.store.append(&self.conversation, &events).await?;
        let latest: Arc<[_]> = events.into_iter().map(Arc::new).collect();
        self.head.send_replace(Head { end, latest: Arc::clone(&latest) });
        Ok(latest)
    }

    /// A reader that begins at `from`.
    pub fn cursor(&self, from: EventId) -> Cursor {
        Cursor {
            store: Arc::clone(&self.store),
            conversation: self.conversation.clone(),
            next: from,
            head: self.head.subscribe(),
        }
    }
}

/// A reader's place in a log.
pub struct Cursor {
    store: Arc<dyn EventStore>,
    conversation: ConversationId,
    next: EventId,
    head: watch::Receiver<Head>,
}

impl Cursor {
    /// The next events, as soon as there are some; nothing when the log was closed and all of it is read.
    /// Cancel-safe: the place moves only when events are returned.
    ///
    /// # Errors
    /// What the store's reading can fail with; the place stays.
    pub async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        let next = self.next;
        // An error means that the owner is gone; the head it left is still there.
        let _ = self.head.wait_for(|head| head.end > next).await;
        let latest = self.head.borrow().since(next);
        let events = match latest {
            Some(events) => events,
            None => self.store.read(&self.conversation, next, PAGE).await?,
        };
        if let Some(last) = events.last() {
            self.next = last.id.next();
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::action::MessageAction;
    use protocol::{Action, Event, EventId, EventSource};

    use super::EventLog;
    use crate::events::EventStore as _;
    use crate::testing::{MemoryStore, timestamp};

    fn event(id: u64) -> Event {
        let message = MessageAction { content: format!("message {id}"), ..Default::default() };
        Event::new(EventId(id), timestamp(), EventSource::User, Action::from(message))
    }

    #[tokio::test]
    async fn a_slow_reader_holds_up_nobody_and_loses_nothing() {
        let store = Arc::new(MemoryStore::default());
        let (log, events) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        assert!(events.is_empty());
        let mut slow = log.cursor(EventId::FIRST);
        for id in 0..1000 {
            log.append(vec![event(id)]).await.unwrap();
        }
        drop(log);
        let mut ids = Vec::new();
        loop {
            let events = slow.next().await.unwrap();
            if events.is_empty() {
                break;
            }
            ids.extend(events.iter().map(|event| event.id.0));
        }
        assert_eq!(ids, (0..1000).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_waiting_reader_hears_of_what_is_appended() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        let mut reader = log.cursor(EventId::FIRST);
        let (events, ()) =
            tokio::join!(reader.next(), async { drop(log.append(vec![event(0)]).await.unwrap()) });
        assert_eq!(events.unwrap(), [event(0)]);
    }

    #[tokio::test]
    async fn whoever_follows_misses_nothing_wherever_it_begins() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        for batch in [0..1, 1..4, 4..6] {
            log.append(batch.map(event).collect()).await.unwrap();
        }
        for from in 0..6 {
            let mut reader = log.cursor(EventId(from));
            let mut ids = Vec::new();
            while ids.last() != Some(&5) {
                ids.extend(reader.next().await.unwrap().iter().map(|event| event.id.0));
            }
            assert_eq!(ids, (from..6).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_long_log_is_opened_whole() {
        for length in [1, 255, 256, 257, 512, 3000] {
            let store = Arc::new(MemoryStore::default());
            let events: Vec<_> = (0..length).map(event).collect();
            store.append(&"c".parse().unwrap(), &events).await.unwrap();
            let (log, opened) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
            assert!(opened.iter().map(AsRef::as_ref).eq(&events), "{length}");
            log.append(vec![event(length)]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_event_out_of_order_is_refused_and_not_shown() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        let mut reader = log.cursor(EventId::FIRST);
        log.append(vec![event(1)]).await.unwrap_err();
        drop(log);
        assert!(reader.next().await.unwrap().is_empty());
    }
}
