//! Copies logs from another store, event by event, without changing them.

use std::io;

use async_trait::async_trait;
use protocol::{ConversationId, Event, EventId};

use crate::claim::Claim;
use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::host::HostError;

/// Size at which events are appended, in bytes of JSON. Smaller logs are appended in one batch.
const MAX_BATCH_BYTES: usize = if cfg!(test) { 3_000 } else { 32 << 20 };

/// The events of a log that is copied, from the first on. Used by one task.
#[async_trait(?Send)]
pub trait EventPages {
    /// Returns the next events. Empty at the end.
    ///
    /// # Errors
    /// An error ends the copy of the log.
    async fn next(&mut self) -> Result<Vec<Event>, ConversationsError>;
}

/// What [`Conversations::copy_in`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// Compares only.
    Compare,
    /// Locks the conversation if events are missing, and appends them.
    Append,
    /// Locks the conversation before it reads, because the other log belongs to the same
    /// conversation and could grow.
    LockAndAppend,
}

/// Result of the copy of a log, or of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopiedLog {
    /// The conversation is new, and has this number of events.
    Added(u64),
    /// The log was the start of the other one, and got this number of further events.
    Extended(u64),
    /// The log has all events of the other one.
    Exists,
    /// The log has another event of this id. It was not changed.
    Differs(EventId),
}

impl Conversations {
    /// Copies a log from another store under the same id, with all its events as they are. Nothing
    /// of an existing log is changed: it gets the events that follow its own, or none if it is
    /// another log. If the copy of a new conversation fails, nothing is left of it; if the process
    /// is killed, the next copy continues.
    ///
    /// # Errors
    /// [`ConversationsError::Locked`] while a process runs the conversation; an error of the store
    /// or the pages.
    pub async fn copy_in(
        &self,
        id: &ConversationId,
        pages: &mut dyn EventPages,
        mode: CopyMode,
    ) -> Result<CopiedLog, ConversationsError> {
        let claim = if mode == CopyMode::LockAndAppend {
            Some(self.claim(id).await?)
        } else {
            None
        };
        let existing = self
            .store
            .find(id)
            .await?
            .map_or(EventId::FIRST, |listed| EventId(listed.summary.events));
        let mut copy = LogCopy {
            conversations: self,
            id,
            mode,
            claim,
            existing,
            end: existing,
            batch: Batch::default(),
        };
        let copied = copy.run(pages).await;
        if copied.is_err() && existing == EventId::FIRST && copy.end > existing {
            // A part of a log must not be resumed. The claim is still held.
            if let Err(error) = self.store.remove(id).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(conversation = %id, error, "cannot remove an incomplete copy");
            }
        }
        copied
    }
}

/// A copy in progress.
struct LogCopy<'a> {
    conversations: &'a Conversations,
    id: &'a ConversationId,
    mode: CopyMode,
    claim: Option<Claim>,
    /// The end of the log before the copy.
    existing: EventId,
    /// The end of the log now.
    end: EventId,
    batch: Batch,
}

/// Events that are not appended yet.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    size_bytes: usize,
}

impl LogCopy<'_> {
    async fn run(&mut self, pages: &mut dyn EventPages) -> Result<CopiedLog, ConversationsError> {
        let (existing, mut next) = (self.existing, EventId::FIRST);
        loop {
            let mut page = pages.next().await?;
            let Some(last) = page.last() else { break };
            let (start, past) = (next, last.id.next());
            if !page.iter().map(|event| event.id.0).eq(start.0..past.0) {
                let text = format!(
                    "the events of conversation {} have a gap after event {start}",
                    self.id
                );
                return Err(HostError::Refused(text).into());
            }
            next = past;
            if start < existing {
                let stored = self
                    .conversations
                    .store
                    .read(self.id, start, page.len())
                    .await?;
                if let Some((other, _)) = page
                    .iter()
                    .zip(&stored)
                    .find(|(other, stored)| other != stored)
                {
                    return Ok(CopiedLog::Differs(other.id));
                }
                page.drain(..stored.len().min(page.len()));
            }
            if self.mode != CopyMode::Compare {
                for event in page {
                    self.push(event).await?;
                }
            }
        }
        self.append().await?;
        Ok(match next.0.saturating_sub(existing.0) {
            0 => CopiedLog::Exists,
            count if existing == EventId::FIRST => CopiedLog::Added(count),
            count => CopiedLog::Extended(count),
        })
    }

    async fn push(&mut self, event: Event) -> Result<(), ConversationsError> {
        self.batch.size_bytes += json_length(&event);
        self.batch.events.push(event);
        if self.batch.size_bytes >= MAX_BATCH_BYTES {
            self.append().await
        } else {
            Ok(())
        }
    }

    async fn append(&mut self) -> Result<(), ConversationsError> {
        let Batch { events, .. } = std::mem::take(&mut self.batch);
        let Some(last) = events.last() else {
            return Ok(());
        };
        if self.claim.is_none() {
            self.claim = Some(self.conversations.claim(self.id).await?);
        }
        let end = last.id.next();
        self.conversations.store.append(self.id, &events).await?;
        self.end = end;
        Ok(())
    }
}

/// Returns the length of an event's JSON, in bytes.
fn json_length(event: &Event) -> usize {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    // Only an estimate is needed of an event that cannot be written, which the store reports.
    let _ = serde_json::to_writer(&mut length, event);
    length.0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::events::EventStore;
    use engine::testing::{MemoryStore, timestamp};
    use protocol::action::MessageAction;
    use protocol::{Action, EventSource};

    use super::*;
    use crate::host::ConversationLocks;
    use crate::log_pages::LogPages;
    use crate::single_process::{NoWorkspaces, ProcessLocks};

    fn event(id: u64, content: String) -> Event {
        let message = MessageAction {
            content,
            ..Default::default()
        };
        Event::new(
            EventId(id),
            timestamp(),
            EventSource::User,
            Action::from(message),
        )
    }

    fn log(length: u64) -> Vec<Event> {
        (0..length)
            .map(|id| event(id, format!("message {id}")))
            .collect()
    }

    /// Pages of a list of events, with an error at the end if `fails`.
    struct Pages {
        events: Vec<Event>,
        fails: bool,
    }

    #[async_trait(?Send)]
    impl EventPages for Pages {
        async fn next(&mut self) -> Result<Vec<Event>, ConversationsError> {
            if self.events.is_empty() && self.fails {
                return Err(ConversationsError::NoConversations);
            }
            Ok(self.events.drain(..self.events.len().min(7)).collect())
        }
    }

    struct Fixture {
        store: Arc<MemoryStore>,
        locks: Arc<ProcessLocks>,
        conversations: Conversations,
        id: ConversationId,
    }

    impl Fixture {
        fn new() -> Self {
            let (store, locks) = (
                Arc::new(MemoryStore::default()),
                Arc::new(ProcessLocks::default()),
            );
            let conversations =
                Conversations::new(store.clone(), locks.clone(), Arc::new(NoWorkspaces));
            Self {
                store,
                locks,
                conversations,
                id: "c".parse().unwrap(),
            }
        }

        async fn copy(
            &self,
            events: Vec<Event>,
            mode: CopyMode,
        ) -> Result<CopiedLog, ConversationsError> {
            self.conversations
                .copy_in(
                    &self.id,
                    &mut Pages {
                        events,
                        fails: false,
                    },
                    mode,
                )
                .await
        }

        async fn stored(&self) -> Vec<Event> {
            self.store
                .read(&self.id, EventId::FIRST, usize::MAX)
                .await
                .unwrap()
        }
    }

    #[tokio::test]
    async fn log_is_copied_once_and_extended() {
        let target = Fixture::new();
        for (length, mode, expected, stored) in [
            (20, CopyMode::Compare, CopiedLog::Added(20), 0),
            (20, CopyMode::Append, CopiedLog::Added(20), 20),
            (20, CopyMode::Append, CopiedLog::Exists, 20),
            (3, CopyMode::Append, CopiedLog::Exists, 20),
            (23, CopyMode::Compare, CopiedLog::Extended(3), 20),
            (23, CopyMode::LockAndAppend, CopiedLog::Extended(3), 23),
            (0, CopyMode::LockAndAppend, CopiedLog::Exists, 23),
        ] {
            assert_eq!(
                target.copy(log(length), mode).await.unwrap(),
                expected,
                "{length} {mode:?}"
            );
            assert_eq!(target.stored().await, log(stored));
        }
    }

    #[tokio::test]
    async fn log_is_not_changed_when_it_differs() {
        let target = Fixture::new();
        target.store.append(&target.id, &log(10)).await.unwrap();
        let mut other = log(20);
        other[8] = event(8, "other".to_owned());
        let copied = target.copy(other, CopyMode::Append).await.unwrap();
        assert_eq!(copied, CopiedLog::Differs(EventId(8)));
        assert_eq!(target.stored().await, log(10));
    }

    #[tokio::test]
    async fn running_conversation_is_extended_only_after_its_end() {
        let target = Fixture::new();
        target.store.append(&target.id, &log(10)).await.unwrap();
        let lock = target.locks.lock(&target.id).await.unwrap().unwrap();
        assert_eq!(
            target.copy(log(10), CopyMode::Append).await.unwrap(),
            CopiedLog::Exists
        );
        for (length, mode) in [(11, CopyMode::Append), (10, CopyMode::LockAndAppend)] {
            let copied = target.copy(log(length), mode).await;
            assert!(
                matches!(copied, Err(ConversationsError::Locked(_))),
                "{copied:?}"
            );
        }
        drop(lock);
        assert_eq!(
            target.copy(log(11), CopyMode::Append).await.unwrap(),
            CopiedLog::Extended(1)
        );
    }

    #[tokio::test]
    async fn incomplete_copy_of_a_new_log_is_removed() {
        let target = Fixture::new();
        // Two batches.
        let text = "x".repeat(MAX_BATCH_BYTES / 3);
        let large: Vec<_> = (0..5).map(|id| event(id, text.clone())).collect();
        let mut failing = Pages {
            events: large.clone(),
            fails: true,
        };
        let copied = target
            .conversations
            .copy_in(&target.id, &mut failing, CopyMode::Append)
            .await;
        assert!(matches!(copied, Err(ConversationsError::NoConversations)));
        assert!(target.stored().await.is_empty());
        let mut gap = large.clone();
        gap.remove(4);
        gap.push(event(9, String::new()));
        let copied = target.copy(gap, CopyMode::Append).await;
        assert!(matches!(
            copied,
            Err(ConversationsError::Host(HostError::Refused(_)))
        ));
        assert!(target.stored().await.is_empty());
        assert_eq!(
            target.copy(large.clone(), CopyMode::Append).await.unwrap(),
            CopiedLog::Added(5)
        );
        assert!(target.stored().await == large);
    }

    #[tokio::test]
    async fn pages_of_a_log_end_with_it_or_before() {
        let source = Fixture::new();
        source.store.append(&source.id, &log(100)).await.unwrap();
        let store = || Arc::clone(&source.store) as Arc<dyn EventStore>;
        let all = LogPages::new(store(), source.id.clone());
        let first = LogPages::before(store(), source.id.clone(), EventId(90));
        for (mut pages, length) in [(all, 100), (first, 90)] {
            let mut events = Vec::new();
            loop {
                let page = pages.next().await.unwrap();
                if page.is_empty() {
                    break;
                }
                events.extend(page);
            }
            assert_eq!(events, log(length));
        }
        let mut pages = LogPages::before(store(), source.id.clone(), EventId(90));
        pages.next().await.unwrap();
        source.store.remove(&source.id).await.unwrap();
        assert!(matches!(
            pages.next().await,
            Err(ConversationsError::Unknown(_))
        ));
    }
}
