//! The events of a log, page by page, so that a long log is never in memory.

use std::sync::Arc;

use async_trait::async_trait;
use engine::events::EventStore;
use protocol::{ConversationId, Event, EventId};

use crate::conversations::Conversations;
use crate::copy::EventPages;
use crate::error::ConversationsError;

/// Maximum number of events of a page.
const PAGE_SIZE: usize = 64;

/// Length of the JSON of a page's events, which ends with the event that exceeds it. Bounds the
/// memory, because an event may have megabytes.
pub(crate) const MAX_PAGE_BYTES: usize = 1 << 20;

/// The events of a log in a store, or the first ones: as logs only grow, those are the same while
/// others append to it.
pub struct LogPages {
    store: Arc<dyn EventStore>,
    conversation: ConversationId,
    next: EventId,
    /// `None` for the end of the log.
    end: Option<EventId>,
}

impl LogPages {
    /// Returns all events.
    pub fn new(store: Arc<dyn EventStore>, conversation: ConversationId) -> Self {
        Self {
            store,
            conversation,
            next: EventId::FIRST,
            end: None,
        }
    }

    /// Returns the events before `end`, which the log has.
    pub fn before(store: Arc<dyn EventStore>, conversation: ConversationId, end: EventId) -> Self {
        Self {
            end: Some(end),
            ..Self::new(store, conversation)
        }
    }

    /// Returns the next events. Empty at the end.
    ///
    /// # Errors
    /// [`ConversationsError::Store`]; [`ConversationsError::Unknown`] if events before the end are
    /// missing, because the conversation was removed meanwhile.
    pub async fn next_page(&mut self) -> Result<Vec<Event>, ConversationsError> {
        let left = self
            .end
            .map_or(u64::MAX, |end| end.0.saturating_sub(self.next.0));
        let limit = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_SIZE);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let page = self
            .store
            .read_page(&self.conversation, self.next, limit, MAX_PAGE_BYTES)
            .await?;
        match page.last() {
            Some(last) => self.next = last.id.next(),
            None if self.end.is_some() => {
                return Err(ConversationsError::Unknown(self.conversation.clone()));
            }
            None => {}
        }
        Ok(page)
    }
}

#[async_trait(?Send)]
impl EventPages for LogPages {
    async fn next(&mut self) -> Result<Vec<Event>, ConversationsError> {
        self.next_page().await
    }
}

impl Conversations {
    /// Reads at most `limit` events of a conversation from `from` on, and fewer if they are large.
    /// Empty if the log ends before.
    ///
    /// # Errors
    /// [`ConversationsError::Store`].
    pub async fn read_page(
        &self,
        id: &ConversationId,
        from: EventId,
        limit: usize,
    ) -> Result<Vec<Event>, ConversationsError> {
        Ok(self
            .store
            .read_page(id, from, limit, MAX_PAGE_BYTES)
            .await?)
    }
}
