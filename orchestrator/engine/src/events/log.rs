//! The event log of one conversation, with one writer and any number of readers.
//!
//! The writer appends to the store and then advances the head. A reader holds only a cursor: it
//! reads from the store up to the head and waits there. The latest events are shared, so that many
//! readers near the head read nothing from the store. A slow reader does not block the writer and
//! misses no event. When the writer drops the log, readers read the remaining events and then reach
//! the end.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use protocol::{ConversationId, Event, EventId};
use tokio::sync::watch;

use super::{EventStore, StoreError};

/// Number of events per read from the store. Large enough to be worth a query, and bounds the
/// memory of a reader.
const PAGE_SIZE: usize = 256;

/// Length of the JSON of a reader's page, which ends with the event that exceeds it. Events may
/// have megabytes.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Number of the latest events that readers share. One that is further behind reads the store.
/// Bounds the memory of events that the agent no longer has.
const MAX_RECENT: usize = 64;

/// Number of pages that are read concurrently when a log is opened. Parsing dominates, so this uses
/// all idle CPUs.
const READ_AHEAD: usize = 4;

/// The only writer of a conversation's log.
pub struct EventLog {
    store: Arc<dyn EventStore>,
    conversation: ConversationId,
    head: watch::Sender<Head>,
}

/// The end of a log, and the latest of the events that this process has appended.
struct Head {
    end: EventId,
    recent: VecDeque<Arc<Event>>,
}

impl Head {
    fn advance(&mut self, appended: &[Arc<Event>]) {
        self.recent.extend(appended.iter().cloned());
        self.recent
            .drain(..self.recent.len().saturating_sub(MAX_RECENT));
        self.end = appended.last().map_or(self.end, |last| last.id.next());
    }

    /// Returns the events from `from` on, if all of them are recent.
    fn since(&self, from: EventId) -> Option<Vec<Arc<Event>>> {
        let count = usize::try_from(self.end.0.checked_sub(from.0)?).ok()?;
        let start = self.recent.len().checked_sub(count)?;
        Some(self.recent.range(start..).cloned().collect())
    }
}

impl EventLog {
    /// Opens the log of a conversation and reads all events. The log of a new conversation is
    /// empty.
    ///
    /// # Errors
    /// See [`EventStore::read`].
    pub async fn open(
        store: Arc<dyn EventStore>,
        conversation: ConversationId,
    ) -> Result<(Self, Vec<Arc<Event>>), StoreError> {
        let mut events: Vec<Arc<Event>> = Vec::new();
        let mut is_long = false;
        loop {
            let next = events.len();
            let pages = stream::iter((next..).step_by(PAGE_SIZE))
                .take(if is_long { usize::MAX } else { 1 })
                .map(|from| store.read(&conversation, EventId(from as u64), PAGE_SIZE))
                .buffered(READ_AHEAD);
            tokio::pin!(pages);
            while let Some(page) = pages.try_next().await? {
                is_long = page.len() == PAGE_SIZE;
                events.extend(page.into_iter().map(Arc::new));
                // The page is the last one. Pages read ahead do not follow it.
                if !is_long {
                    break;
                }
            }
            if events.len() == next {
                break;
            }
        }
        let end = EventId(events.len() as u64);
        let head = watch::Sender::new(Head {
            end,
            recent: VecDeque::new(),
        });
        Ok((
            Self {
                store,
                conversation,
                head,
            },
            events,
        ))
    }

    /// Appends events that follow the head, then publishes them to the readers. Returns them in
    /// their stored form.
    ///
    /// # Errors
    /// See [`EventStore::append`]. Nothing is published then.
    pub async fn append(&self, events: Vec<Event>) -> Result<Vec<Arc<Event>>, StoreError> {
        let events = self.store.as_stored(events)?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        self.store.append(&self.conversation, &events).await?;
        let appended: Vec<_> = events.into_iter().map(Arc::new).collect();
        self.head.send_modify(|head| head.advance(&appended));
        Ok(appended)
    }

    /// Returns a reader that starts at `from`.
    pub fn cursor(&self, from: EventId) -> Cursor {
        Cursor {
            store: Arc::clone(&self.store),
            conversation: self.conversation.clone(),
            next: from,
            head: self.head.subscribe(),
        }
    }
}

/// The position of a reader in a log.
pub struct Cursor {
    store: Arc<dyn EventStore>,
    conversation: ConversationId,
    next: EventId,
    head: watch::Receiver<Head>,
}

impl Cursor {
    /// Waits for the next events. Empty once the log is closed and all events have been read.
    /// Cancel-safe: the cursor advances only when events are returned.
    ///
    /// # Errors
    /// See [`EventStore::read`]. The cursor does not advance then.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, StoreError> {
        let next = self.next;
        // An error means that the writer is gone. Its last head is still readable.
        let _ = self.head.wait_for(|head| head.end > next).await;
        let recent = self.head.borrow().since(next);
        let events = match recent {
            Some(events) => events,
            None => {
                let page = self
                    .store
                    .read_page(&self.conversation, next, PAGE_SIZE, MAX_PAGE_BYTES)
                    .await?;
                page.into_iter().map(Arc::new).collect()
            }
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
        let message = MessageAction {
            content: format!("message {id}"),
            ..Default::default()
        };
        Event::new(
            EventId(id),
            timestamp(),
            EventSource::User,
            Action::from(message),
        )
    }

    #[tokio::test]
    async fn slow_reader_does_not_block_the_writer_and_misses_no_event() {
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
    async fn waiting_reader_receives_appended_events() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        let mut reader = log.cursor(EventId::FIRST);
        let (events, ()) = tokio::join!(reader.next(), async {
            drop(log.append(vec![event(0)]).await.unwrap());
        });
        assert_eq!(events.unwrap(), [Arc::new(event(0))]);
    }

    #[tokio::test]
    async fn readers_near_the_end_share_events_after_many_appends() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        let mut appended = Vec::new();
        for id in 0..60 {
            appended.extend(log.append(vec![event(id)]).await.unwrap());
        }
        for from in [0, 30, 59] {
            let read = log.cursor(EventId(from)).next().await.unwrap();
            assert_eq!(read.len() as u64, 60 - from);
            assert!(
                read.iter()
                    .zip(&appended[from as usize..])
                    .all(|(read, event)| Arc::ptr_eq(read, event))
            );
        }
    }

    #[tokio::test]
    async fn reader_misses_no_event_from_any_start() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        for batch in [0..1, 1..4, 4..6, 6..300] {
            log.append(batch.map(event).collect()).await.unwrap();
        }
        for from in (0..6).chain([43, 44, 45, 299]) {
            let mut reader = log.cursor(EventId(from));
            let mut ids = Vec::new();
            while ids.last() != Some(&299) {
                ids.extend(reader.next().await.unwrap().iter().map(|event| event.id.0));
            }
            assert_eq!(ids, (from..300).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn long_log_is_opened_completely() {
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
    async fn event_out_of_order_is_rejected_and_not_published() {
        let store = Arc::new(MemoryStore::default());
        let (log, _) = EventLog::open(store, "c".parse().unwrap()).await.unwrap();
        let mut reader = log.cursor(EventId::FIRST);
        log.append(vec![event(1)]).await.unwrap_err();
        drop(log);
        assert!(reader.next().await.unwrap().is_empty());
    }
}
