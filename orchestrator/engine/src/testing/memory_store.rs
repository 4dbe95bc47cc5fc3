//! An event store in memory, as strict about order as a real one.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use protocol::{ConversationId, Event, EventId};

use crate::events::{
    ConversationList, ConversationPage, ConversationQuery, ConversationSummary, EventStore,
    ListedConversation, OverviewChange, SearchText, StoreError,
};

/// Stores logs in memory, which may be full.
pub struct MemoryStore {
    /// Number of appends that succeed.
    room: AtomicUsize,
    /// A mutex, because no method waits while it holds it.
    logs: Mutex<BTreeMap<ConversationId, Vec<Event>>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            room: AtomicUsize::new(usize::MAX),
            logs: Mutex::default(),
        }
    }
}

impl MemoryStore {
    /// Returns the whole log of a conversation.
    pub fn log(&self, conversation: &ConversationId) -> Vec<Event> {
        self.with(|logs| logs.get(conversation).cloned().unwrap_or_default())
    }

    /// Makes all appends fail from now on, or succeed again.
    pub fn set_full(&self, is_full: bool) {
        self.set_room(if is_full { 0 } else { usize::MAX });
    }

    /// Makes all but the next `appends` appends fail.
    pub fn set_room(&self, appends: usize) {
        self.room.store(appends, Ordering::Relaxed);
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<ConversationId, Vec<Event>>) -> T) -> T {
        act(&mut self
            .logs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

#[async_trait]
impl EventStore for MemoryStore {
    async fn check_writable(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        let take_room = |room: usize| {
            if room == usize::MAX {
                Some(room)
            } else {
                room.checked_sub(1)
            }
        };
        if self
            .room
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_room)
            .is_err()
        {
            let source = "the disk is full".into();
            return Err(StoreError::Storage {
                operation: "append events",
                source,
            });
        }
        self.with(|logs| {
            let log = logs.entry(conversation.clone()).or_default();
            for (expected, event) in (log.len() as u64..).zip(events) {
                if event.id != EventId(expected) {
                    return Err(StoreError::OutOfOrder {
                        conversation: conversation.clone(),
                        id: event.id,
                    });
                }
            }
            log.extend_from_slice(events);
            Ok(())
        })
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        Ok(self.with(|logs| {
            let log = logs
                .get(conversation)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let mut bytes = 0;
            let fits = |event: &&Event| {
                let has_room = bytes <= max_bytes;
                // Most reads have no maximum.
                if max_bytes < usize::MAX {
                    bytes += serde_json::to_string(event).map_or(0, |json| json.len());
                }
                has_room
            };
            log.iter()
                .filter(|event| event.id >= from)
                .take(limit)
                .take_while(fits)
                .cloned()
                .collect()
        }))
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        Ok(self.with(|logs| Some(listed(conversation, logs.get(conversation)?)?.0)))
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        let all: Vec<_> = self.with(|logs| {
            logs.iter()
                .filter_map(|(id, log)| listed(id, log))
                .collect()
        });
        let selected = all
            .into_iter()
            .filter(|(listed, search)| selects(query, listed, search));
        let mut conversations: Vec<_> = selected.map(|(listed, _)| listed).collect();
        conversations.sort_by_key(|listed| std::cmp::Reverse(listed.position()));
        conversations.truncate(query.limit);
        Ok(ConversationPage {
            conversations,
            damaged: Vec::new(),
        })
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        let mut conversations: Vec<_> = self.with(|logs| {
            logs.iter()
                .filter_map(|(id, log)| summarize(id, log))
                .collect()
        });
        conversations.sort_by(|a, b| b.last_updated_at.cmp(&a.last_updated_at));
        Ok(ConversationList {
            conversations,
            damaged: Vec::new(),
        })
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.with(|logs| logs.remove(conversation));
        Ok(())
    }
}

/// Returns the summary of a log. `None` if it is empty.
fn summarize(id: &ConversationId, log: &[Event]) -> Option<ConversationSummary> {
    Some(ConversationSummary {
        id: id.clone(),
        events: log.len() as u64,
        created_at: log.first()?.timestamp.clone(),
        last_updated_at: log.last()?.timestamp.clone(),
    })
}

/// Returns a conversation with its overview and the texts to search in. `None` if its log is empty.
fn listed(id: &ConversationId, log: &[Event]) -> Option<(ListedConversation, SearchText)> {
    let summary = summarize(id, log)?;
    let OverviewChange { overview, search } = OverviewChange::from_events(log);
    Some((
        ListedConversation {
            overview_events: summary.events,
            summary,
            overview,
        },
        search,
    ))
}

fn selects(query: &ConversationQuery, listed: &ListedConversation, search: &SearchText) -> bool {
    let ListedConversation { overview, .. } = listed;
    let ConversationQuery {
        text,
        agent_states,
        folder,
        repository,
        trigger,
        owner,
        before,
        limit: _,
    } = query;
    let has_repository = |part: &String| {
        overview
            .repository
            .as_ref()
            .is_some_and(|url| url.contains(part.as_str()))
    };
    text.as_ref().is_none_or(|text| search.contains(text))
        && (agent_states.is_empty() || agent_states.contains(&overview.agent_state()))
        && (folder.is_none() || *folder == overview.folder)
        && repository.as_ref().is_none_or(has_repository)
        && trigger.is_none_or(|trigger| trigger == overview.trigger.unwrap_or_default())
        && (owner.is_none() || *owner == overview.owner)
        && before
            .as_ref()
            .is_none_or(|before| listed.position() < *before)
}
