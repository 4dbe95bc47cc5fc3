//! Appends to event logs.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use engine::events::{
    ConversationList, ConversationPage, ConversationQuery, EventStore, ListedConversation,
    StoreError,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use protocol::{Action, ConversationId, Event, EventBody, EventId};
use tokio::sync::watch;

use super::short_times;

/// Metrics of a store. Clones share their values.
#[derive(Debug, Clone)]
pub(super) struct StoreMetrics {
    duration: Histogram,
    events: Counter,
    errors: Counter,
    steps: Counter,
}

impl StoreMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: short_times(),
            events: Counter::default(),
            errors: Counter::default(),
            steps: Counter::default(),
        };
        registry.register_with_unit(
            "event_append_duration",
            "Time until appended events are stored. They are published and delivered afterwards",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "events_appended",
            "Events that were appended",
            metrics.events.clone(),
        );
        registry.register(
            "event_append_errors",
            "Appends that failed",
            metrics.errors.clone(),
        );
        registry.register("agent_steps", "Steps of agents", metrics.steps.clone());
        metrics
    }
}

/// Whether an event is the first of a step of an agent. Condensations and titles call models too.
fn is_step(event: &Event) -> bool {
    let is_other = matches!(
        event.body,
        EventBody::Action(Action::Condensation(_)) | EventBody::Record(_)
    );
    event.llm_metrics.is_some() && !is_other
}

/// A store whose appends are measured.
pub(super) struct MeteredStore {
    inner: Arc<dyn EventStore>,
    metrics: StoreMetrics,
}

impl MeteredStore {
    pub(super) fn new(inner: Arc<dyn EventStore>, metrics: StoreMetrics) -> Self {
        Self { inner, metrics }
    }
}

#[async_trait]
impl EventStore for MeteredStore {
    async fn append(
        &self,
        conversation: &ConversationId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        let started = Instant::now();
        let appended = self.inner.append(conversation, events).await;
        match &appended {
            Ok(()) => {
                self.metrics
                    .duration
                    .observe(started.elapsed().as_secs_f64());
                self.metrics.events.inc_by(events.len() as u64);
                self.metrics
                    .steps
                    .inc_by(events.iter().filter(|event| is_step(event)).count() as u64);
            }
            Err(_) => {
                self.metrics.errors.inc();
            }
        }
        appended
    }

    fn as_stored(&self, events: Vec<Event>) -> Result<Vec<Event>, StoreError> {
        self.inner.as_stored(events)
    }

    async fn read_page(
        &self,
        conversation: &ConversationId,
        from: EventId,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.inner
            .read_page(conversation, from, limit, max_bytes)
            .await
    }

    async fn find(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ListedConversation>, StoreError> {
        self.inner.find(conversation).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<ConversationPage, StoreError> {
        self.inner.list(query).await
    }

    async fn conversations(&self) -> Result<ConversationList, StoreError> {
        self.inner.conversations().await
    }

    fn subscribe(&self, conversation: &ConversationId) -> Option<watch::Receiver<EventId>> {
        self.inner.subscribe(conversation)
    }

    async fn check_writable(&self) -> Result<(), StoreError> {
        self.inner.check_writable().await
    }

    async fn remove(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.inner.remove(conversation).await
    }
}
