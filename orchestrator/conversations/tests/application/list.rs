//! The list of stored conversations: filters that the store does not know, pages, overviews that
//! lack events.

use std::sync::Arc;

use async_trait::async_trait;
use conversations::{
    ConversationEntry, ConversationFilter, ConversationLocks as _, Conversations, NoWorkspaces,
    ProcessLocks,
};
use engine::events::{
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation,
    Overview, StoreError,
};
use engine::testing::MemoryStore;
use protocol::action::MessageAction;
use protocol::client_api::v2::ConversationStatus;
use protocol::observation::AgentStateChangedObservation;
use protocol::record::ConversationTrigger;
use protocol::{
    Action, AgentState, ConversationId, Event, EventId, EventSource, Observation, Timestamp,
};

/// More than two reads of the store.
const CONVERSATIONS: usize = 1100;

/// One in so many conversations has this property.
const INTERVAL: usize = 250;

fn id(number: usize) -> ConversationId {
    format!("c{number:04}").parse().unwrap()
}

/// Appends a first message and a state, later than those of lower numbers.
async fn append(store: &dyn EventStore, number: usize, agent_state: AgentState) {
    let timestamp = Timestamp::try_from(format!("2025-10-03T12:00:00.{number:06}")).unwrap();
    let message = MessageAction {
        content: format!("Task {number}"),
        ..Default::default()
    };
    let changed = AgentStateChangedObservation {
        agent_state,
        reason: String::new(),
    };
    let events = [
        Event::new(
            EventId(0),
            timestamp.clone(),
            EventSource::User,
            Action::from(message),
        ),
        Event::new(
            EventId(1),
            timestamp,
            EventSource::Environment,
            Observation::without_content(changed),
        ),
    ];
    store.append(&id(number), &events).await.unwrap();
}

fn conversations(store: Arc<dyn EventStore>, locks: ProcessLocks) -> Conversations {
    Conversations::new(store, Arc::new(locks), Arc::new(NoWorkspaces))
}

fn ids(entries: &[ConversationEntry]) -> Vec<&str> {
    entries.iter().map(ConversationEntry::id).collect()
}

/// A running conversation and an interrupted one are the same to the store, so the list reads on.
#[tokio::test]
async fn interrupted_are_found_between_many_that_run() {
    let (store, locks) = (Arc::new(MemoryStore::default()), ProcessLocks::default());
    let mut held = Vec::new();
    for number in 0..CONVERSATIONS {
        let is_finished = number % 7 == 3;
        append(
            &*store,
            number,
            if is_finished {
                AgentState::Finished
            } else {
                AgentState::Running
            },
        )
        .await;
        if number % INTERVAL != 1 {
            held.push(locks.lock(&id(number)).await.unwrap().unwrap());
        }
    }
    let conversations = conversations(store, locks);
    let mut filter = ConversationFilter {
        statuses: vec![ConversationStatus::Interrupted],
        limit: Some(2),
        ..Default::default()
    };
    let first = conversations.list(&filter).await.unwrap();
    assert_eq!(ids(&first), ["c1001", "c0751"]);
    filter.before = first[1].position();
    filter.limit = None;
    assert_eq!(
        ids(&conversations.list(&filter).await.unwrap()),
        ["c0501", "c0251", "c0001"]
    );
}

#[tokio::test]
async fn list_without_a_limit_is_complete() {
    let store = Arc::new(MemoryStore::default());
    for number in 0..CONVERSATIONS {
        append(&*store, number, AgentState::Finished).await;
    }
    let listed = conversations(store, ProcessLocks::default());
    let listed = listed.list(&ConversationFilter::default()).await.unwrap();
    let expected: Vec<_> = (0..CONVERSATIONS)
        .rev()
        .map(|number| id(number).to_string())
        .collect();
    assert_eq!(ids(&listed), expected);
}

/// A store whose overviews an older version of Glovebox has not updated.
#[derive(Default)]
struct OutdatedStore {
    logs: MemoryStore,
}

/// Removes the last event from an overview.
fn outdate(listed: ListedConversation) -> ListedConversation {
    let overview = Overview {
        agent_state: None,
        ..listed.overview
    };
    ListedConversation {
        overview,
        overview_events: 1,
        ..listed
    }
}

#[async_trait]
impl EventStore for OutdatedStore {
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        self.logs.append(conversation, events).await
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.logs
            .read_page(conversation, from, limit, max_bytes)
            .await
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        Ok(self.logs.find(conversation).await?.map(outdate))
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        let page = self.logs.list(query).await?;
        Ok(ConversationPage {
            conversations: page.conversations.into_iter().map(outdate).collect(),
            ..page
        })
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.logs.conversations().await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.logs.check_writable().await
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.logs.remove(conversation).await
    }
}

#[tokio::test]
async fn missing_events_are_read_from_the_log() {
    let store = Arc::new(OutdatedStore::default());
    append(&*store, 1, AgentState::Finished).await;
    let conversations = conversations(store, ProcessLocks::default());
    let listed = conversations
        .list(&ConversationFilter::default())
        .await
        .unwrap();
    let found = conversations.entry(&id(1)).await.unwrap().unwrap();
    for entry in [&listed[0], &found] {
        assert_eq!(
            entry.status(),
            ConversationStatus::Agent(AgentState::Finished)
        );
        assert_eq!(entry.overview.as_ref().unwrap().title(), "Task 1");
    }
}

/// A store whose events cannot be read, as in damaged logs.
struct OverviewsOnly(MemoryStore);

#[async_trait]
impl EventStore for OverviewsOnly {
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        self.0.append(conversation, events).await
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        _: usize,
        _: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let source = "its events must not be read".into();
        Err(StoreError::Damaged {
            conversation: conversation.clone(),
            id: from,
            source,
        })
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        self.0.find(conversation).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        self.0.list(query).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.0.conversations().await
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.0.check_writable().await
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.0.remove(conversation).await
    }
}

#[tokio::test]
async fn list_by_trigger_reads_no_events() {
    let store = Arc::new(OverviewsOnly(MemoryStore::default()));
    for (number, trigger) in [None, Some("gui"), Some("slack"), Some("slack")]
        .into_iter()
        .enumerate()
    {
        let started = Event::from_value(&serde_json::json!({
            "id": 0, "timestamp": format!("2025-10-03T12:00:0{number}.000000"), "source": "environment",
            "record": "conversation_started", "args": {
                "agent": "CodeActAgent", "model": "m", "max_iterations": 5, "runtime": "local", "image": null,
                "workspace": null, "trigger": trigger,
            },
        }));
        store
            .append(&id(number), &[started.unwrap()])
            .await
            .unwrap();
    }
    let conversations = conversations(store, ProcessLocks::default());
    for (trigger, expected) in [
        (ConversationTrigger::Slack, &["c0003", "c0002"][..]),
        (ConversationTrigger::Gui, &["c0001", "c0000"]),
        (ConversationTrigger::Api, &[]),
    ] {
        let filter = ConversationFilter {
            trigger: Some(trigger),
            limit: Some(10),
            ..Default::default()
        };
        let listed = conversations.list(&filter).await.unwrap();
        assert!(
            listed.iter().all(|entry| entry.overview.is_ok()),
            "{listed:?}"
        );
        assert_eq!(ids(&listed), expected, "{trigger:?}");
    }
}
