//! A log as a V0 trajectory, without the records that V0 does not know. Page by page, so that a
//! long log is never in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::events::EventStore;
use protocol::{
    Action, ConversationId, Event, EventBody, EventId, EventSource, Observation, ObservationKind,
};

use crate::conversations::Conversations;
use crate::error::ConversationsError;
use crate::log_pages::LogPages;

/// The events of a trajectory.
pub struct TrajectoryPages {
    store: Arc<dyn EventStore>,
    conversation: ConversationId,
    pages: LogPages,
    with_screenshots: bool,
    /// The latest offer of tool servers to each agent whose `system` action follows. V0 has one
    /// such action per agent, with all tools; the log has another one for each change of the
    /// offered tools.
    offers: BTreeMap<Option<EventId>, EventId>,
}

impl Conversations {
    /// Returns a conversation as a V0 trajectory: the events that it has now. Reads the log twice,
    /// because the first events of a trajectory depend on the last ones of the log. Screenshots of
    /// pages are left out unless they are requested.
    ///
    /// # Errors
    /// [`ConversationsError::Unknown`] or [`ConversationsError::Store`].
    pub async fn trajectory(
        &self,
        id: &ConversationId,
        with_screenshots: bool,
    ) -> Result<TrajectoryPages, ConversationsError> {
        let end = EventId(self.event_count(id).await?);
        let pages = || LogPages::before(Arc::clone(&self.store), id.clone(), end);
        let (mut offers, mut earlier) = (BTreeMap::new(), pages());
        loop {
            let page = earlier.next_page().await?;
            if page.is_empty() {
                break;
            }
            offers.extend(
                page.iter()
                    .filter(|event| is_offer(event))
                    .map(|offer| (offer.delegation, offer.id)),
            );
        }
        let store = Arc::clone(&self.store);
        Ok(TrajectoryPages {
            store,
            conversation: id.clone(),
            pages: pages(),
            with_screenshots,
            offers,
        })
    }
}

impl TrajectoryPages {
    /// Returns the next events, which may be none. `None` at the end.
    ///
    /// # Errors
    /// See [`Conversations::trajectory`].
    pub async fn next(&mut self) -> Result<Option<Vec<Event>>, ConversationsError> {
        let mut page = self.pages.next_page().await?;
        if page.is_empty() {
            return Ok(None);
        }
        page.retain(|event| !matches!(event.body, EventBody::Record(_)) && !is_offer(event));
        for event in &mut page {
            self.merge_offer(event).await?;
            if let EventBody::Observation(Observation {
                kind: ObservationKind::Browse(page),
                ..
            }) = &mut event.body
                && !self.with_screenshots
            {
                (page.screenshot, page.set_of_marks) = (String::new(), String::new());
            }
        }
        Ok(Some(page))
    }

    /// Adds the offered tools to the first `system` action of an agent.
    async fn merge_offer(&mut self, event: &mut Event) -> Result<(), ConversationsError> {
        let EventBody::Action(Action::System(system)) = &mut event.body else {
            return Ok(());
        };
        let Some(offer) = self.offers.remove(&event.delegation) else {
            return Ok(());
        };
        let offer = self.store.read(&self.conversation, offer, 1).await?.pop();
        if let Some(EventBody::Action(Action::System(offer))) = offer.map(|offer| offer.body) {
            system
                .tools
                .get_or_insert_default()
                .extend(offer.tools.unwrap_or_default());
        }
        Ok(())
    }
}

fn is_offer(event: &Event) -> bool {
    matches!(event.body, EventBody::Action(Action::System(_)))
        && event.source == EventSource::Environment
}

#[cfg(test)]
mod tests {
    use engine::testing::{MemoryStore, timestamp};
    use protocol::action::{MessageAction, SystemAction};

    use super::*;
    use crate::single_process::{NoWorkspaces, ProcessLocks};

    fn system(id: u64, source: EventSource, delegation: Option<EventId>, tools: &[&str]) -> Event {
        let tools = tools.iter().map(|tool| serde_json::json!(tool)).collect();
        let system = SystemAction {
            tools: Some(tools),
            ..Default::default()
        };
        let mut event = Event::new(EventId(id), timestamp(), source, Action::from(system));
        event.delegation = delegation;
        event
    }

    async fn conversations(log: &[Event]) -> (Conversations, ConversationId) {
        let (store, id) = (MemoryStore::default(), "a".parse().unwrap());
        store.append(&id, log).await.unwrap();
        (
            Conversations::new(
                Arc::new(store),
                Arc::new(ProcessLocks::default()),
                Arc::new(NoWorkspaces),
            ),
            id,
        )
    }

    #[tokio::test]
    async fn export_holds_one_system_action_an_agent() {
        let delegation = Some(EventId(3));
        let (conversations, id) = conversations(&[
            system(0, EventSource::Agent, None, &["own"]),
            system(1, EventSource::Environment, None, &["first"]),
            system(2, EventSource::Environment, None, &["latest"]),
            system(3, EventSource::Agent, delegation, &["delegate's"]),
            system(4, EventSource::Environment, delegation, &["other"]),
            system(5, EventSource::Agent, None, &["again"]),
        ])
        .await;
        let expected = [
            system(0, EventSource::Agent, None, &["own", "latest"]),
            system(3, EventSource::Agent, delegation, &["delegate's", "other"]),
            system(5, EventSource::Agent, None, &["again"]),
        ];
        assert_eq!(conversations.export(&id, true).await.unwrap(), expected);
    }

    /// Each page is dropped before the next one is read, and an event that is appended meanwhile is
    /// not part of the trajectory.
    #[tokio::test]
    async fn pages_are_bounded_when_events_are_large() {
        let event = |id| {
            let message = MessageAction {
                content: "x".repeat(300_000),
                ..MessageAction::default()
            };
            Event::new(
                EventId(id),
                timestamp(),
                EventSource::User,
                Action::from(message),
            )
        };
        let log: Vec<_> = (0..20).map(event).collect();
        let (conversations, id) = conversations(&log).await;
        let mut pages = conversations.trajectory(&id, false).await.unwrap();
        conversations.store.append(&id, &[event(20)]).await.unwrap();
        let mut read = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            assert!(page.len() <= 4, "{} events of a page", page.len());
            read.extend(page);
        }
        assert_eq!(read, log);
    }
}
