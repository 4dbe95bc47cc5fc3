use std::time::Duration;

use engine::llm::{Completion, Llm, LlmRequest, ModelResponse};
use engine::testing::{HangingLlm, MemoryStore, timestamp};
use protocol::action::NullAction;
use protocol::metrics::TokenUsage;
use protocol::{Action, ConversationId, Event, EventId, EventSource};
use server::{ServedRequest, ServerMetrics as _, ServerUsage};

use super::*;

fn metrics() -> Arc<Metrics> {
    Metrics::new(
        ["b\"".to_owned()],
        Box::new(|| {
            Some(PoolUsage {
                used: 1,
                idle: 2,
                waiting: 3,
            })
        }),
    )
}

/// The value of the sample that starts so. Panics without it.
fn value(metrics: &Metrics, sample: &str) -> f64 {
    let text = metrics.render(&ServerUsage::default()).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{sample} is not in {text}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn cancelled_call_is_no_longer_in_flight() {
    let metrics = metrics();
    let hanging = Arc::new(HangingLlm::default());
    let llm = metrics
        .models()
        .measure(Arc::clone(&hanging) as Arc<dyn Llm>);
    let call = tokio::spawn(async move { llm.complete(&LlmRequest::default(), &|_| {}).await });
    hanging.called.notified().await;
    assert_eq!(value(&metrics, "glovebox_model_calls_in_flight"), 1.0);
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(value(&metrics, "glovebox_model_calls_in_flight"), 0.0);
}

#[test]
fn completion_counts_for_the_model_that_was_called() {
    let metrics = metrics();
    let usage = TokenUsage {
        model: "b\"".to_owned(),
        prompt_tokens: 7,
        completion_tokens: 3,
        ..Default::default()
    };
    let completion = Completion {
        response: ModelResponse::default(),
        usage,
        cost: Some(0.25),
        latency: Duration::from_millis(1500),
    };
    metrics.models().record_completion(&completion, "a");
    metrics.models().record_completion(
        &Completion {
            cost: None,
            ..completion
        },
        "a",
    );
    assert_eq!(
        value(
            &metrics,
            "glovebox_model_tokens_total{model=\"b_\",kind=\"prompt\"}"
        ),
        14.0
    );
    assert_eq!(
        value(&metrics, "glovebox_model_cost_dollars_total{model=\"b_\"}"),
        0.25
    );
    assert_eq!(
        value(
            &metrics,
            "glovebox_model_call_duration_seconds_sum{model=\"b_\"}"
        ),
        3.0
    );
}

#[tokio::test]
async fn failed_append_counts_as_an_error() {
    let metrics = metrics();
    let memory = Arc::new(MemoryStore::default());
    let store = metrics.store(Arc::clone(&memory) as Arc<dyn EventStore>);
    let event = |id| {
        Event::new(
            id,
            timestamp(),
            EventSource::User,
            Action::Null(NullAction {}),
        )
    };
    let conversation: ConversationId = "a".parse().unwrap();
    store
        .append(&conversation, &[event(EventId::FIRST)])
        .await
        .unwrap();
    memory.set_full(true);
    store
        .append(&conversation, &[event(EventId::FIRST.next())])
        .await
        .unwrap_err();
    assert_eq!(value(&metrics, "glovebox_events_appended_total"), 1.0);
    assert_eq!(value(&metrics, "glovebox_event_append_errors_total"), 1.0);
    assert_eq!(value(&metrics, "glovebox_agent_steps_total"), 0.0);
}

#[test]
fn requests_and_gauges_have_bounded_labels() {
    let metrics = metrics();
    let request = ServedRequest {
        method: "HACK",
        route: "none",
        status: 404,
        duration: Duration::ZERO,
    };
    metrics.record_request(&request);
    let labels = "{method=\"other\",route=\"none\",status=\"4xx\"}";
    assert_eq!(
        value(
            &metrics,
            &format!("glovebox_http_request_duration_seconds_count{labels}")
        ),
        1.0
    );
    assert_eq!(
        value(&metrics, "glovebox_database_connections{state=\"idle\"}"),
        2.0
    );
    assert_eq!(value(&metrics, "glovebox_database_waiting"), 3.0);
    let usage = ServerUsage {
        open_streams: 4,
        agent_states: [("running", 5)].into(),
    };
    let text = metrics.render(&usage).unwrap();
    assert!(
        text.contains("glovebox_conversations_running{state=\"running\"} 5\n"),
        "{text}"
    );
    assert!(text.contains("glovebox_streams_open 4\n"), "{text}");
    let text = metrics.render(&ServerUsage::default()).unwrap();
    assert!(!text.contains("glovebox_conversations_running{"), "{text}");
}
