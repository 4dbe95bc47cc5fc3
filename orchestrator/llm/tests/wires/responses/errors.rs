//! Error responses and events, and responses that are cut.

use engine::llm::LlmErrorKind;
use serde_json::{Value, json};

use super::scene::{call_item, config, events, reasoning_item, response, stream, text_item};
use crate::scene::complete;
use crate::server::{Reply, Server};

async fn error_of(reply: Reply) -> (LlmErrorKind, String) {
    let server = Server::start(vec![reply]).await;
    let error = complete(&config(&server)).await.unwrap_err();
    (error.kind, error.detail)
}

fn hello() -> Value {
    response(&json!([
        reasoning_item("rs_1", "hm"),
        text_item("Hello"),
        call_item("call_1")
    ]))
}

#[tokio::test]
async fn stream_is_incomplete_when_cut_before_its_last_event() {
    let events = events(&hello());
    for end in 0..events.len() {
        let (kind, _) = error_of(stream(&events[..end])).await;
        assert_eq!(kind, LlmErrorKind::StreamCut, "after {end} events");
        // A proxy ends the stream although OpenAI has not.
        let cut = [&events[..end], &["[DONE]".to_owned()]].concat();
        assert_eq!(
            error_of(stream(&cut)).await.0,
            LlmErrorKind::StreamCut,
            "after {end} events"
        );
    }
}

#[tokio::test]
async fn error_event_is_classified_in_both_formats() {
    let flat = json!({ "type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": null });
    let nested = json!({ "type": "error", "error": { "code": "rate_limit_exceeded", "message": "slow down" } });
    for event in [flat, nested] {
        let mut events = events(&hello());
        events.truncate(4);
        events.push(event.to_string());
        let (kind, detail) = error_of(stream(&events)).await;
        assert_eq!(
            (kind, detail.as_str()),
            (LlmErrorKind::RateLimited, "status 200: slow down")
        );
    }
}

#[tokio::test]
async fn failed_response_is_classified() {
    for (code, expected) in [
        ("server_error", LlmErrorKind::Unavailable),
        ("rate_limit_exceeded", LlmErrorKind::RateLimited),
        (
            "context_length_exceeded",
            LlmErrorKind::ContextWindowExceeded,
        ),
        ("insufficient_quota", LlmErrorKind::OutOfCredit),
        ("invalid_prompt", LlmErrorKind::ContentPolicy),
    ] {
        let mut failed = response(&json!([]));
        failed["status"] = "failed".into();
        failed["error"] = json!({ "code": code, "message": "oops" });
        for reply in [Reply::json(200, &failed), stream(&events(&failed))] {
            assert_eq!(
                error_of(reply).await,
                (expected, "status 200: oops".to_owned()),
                "{code}"
            );
        }
    }
    let mut failed = response(&json!([]));
    failed["status"] = "failed".into();
    for reply in [Reply::json(200, &failed), stream(&events(&failed))] {
        assert_eq!(error_of(reply).await.0, LlmErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn call_is_retried_when_the_stream_fails() {
    let failed = json!({ "type": "response.failed", "response": { "error": {
        "code": "rate_limit_exceeded", "message": "Please try again in 20ms.",
    } } });
    let mut server = Server::start(vec![
        stream(&[failed.to_string()]),
        stream(&events(&hello())),
    ])
    .await;
    let mut config = config(&server);
    config.retry.num_retries = 2;
    assert_eq!(
        complete(&config).await.unwrap().response.message.text,
        "Hello"
    );
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn filtered_response_is_a_content_policy_error() {
    let mut filtered = response(&json!([]));
    filtered["status"] = "incomplete".into();
    filtered["incomplete_details"] = json!({ "reason": "content_filter" });
    assert_eq!(
        error_of(stream(&events(&filtered))).await.0,
        LlmErrorKind::ContentPolicy
    );
}

#[tokio::test]
async fn nonsense_is_malformed() {
    for body in [
        "",
        "nonsense",
        "[]",
        "{}",
        r#"{"output": "hi"}"#,
        r#"{"choices": []}"#,
    ] {
        assert_eq!(
            error_of(Reply::new(200, &[], body)).await.0,
            LlmErrorKind::Malformed,
            "{body}"
        );
    }
}

#[tokio::test]
async fn nonsense_in_events_is_ignored() {
    let mut events = events(&hello());
    for nonsense in [
        r#"{"type":"response.output_text.delta","delta":7}"#,
        r#"{"type":"response.completed","response":7}"#,
        r#"{"type":7}"#,
        "[]",
        "null",
    ] {
        events.insert(1, nonsense.to_owned());
    }
    let server = Server::start(vec![stream(&events)]).await;
    let message = complete(&config(&server)).await.unwrap().response.message;
    assert_eq!(
        (message.text.as_str(), message.tool_calls.len()),
        ("Hello", 1)
    );
}

#[tokio::test]
async fn refused_parameters_are_dropped() {
    let refusal = |param: Option<&str>, code: Option<&str>, message: &str| {
        let kind = "invalid_request_error";
        Reply::json(
            400,
            &json!({ "error": { "message": message, "type": kind, "param": param, "code": code } }),
        )
    };
    let summary = "Your organization must be verified to generate reasoning summaries.";
    let mut server = Server::start(vec![
        refusal(
            Some("reasoning.summary"),
            Some("unsupported_value"),
            summary,
        ),
        refusal(
            None,
            None,
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        ),
        refusal(
            Some("include"),
            None,
            "Encrypted content is not supported with this model.",
        ),
        Reply::json(200, &response(&json!([]))),
    ])
    .await;
    let mut config = config(&server);
    config.reasoning_effort = Some("low".into());
    complete(&config).await.unwrap();
    assert_eq!(
        server.body().await["reasoning"],
        json!({ "effort": "low", "summary": "auto" })
    );
    assert_eq!(server.body().await["reasoning"], json!({ "effort": "low" }));
    let body = server.body().await;
    assert_eq!(
        (body.get("reasoning"), body["include"].is_array()),
        (None, true)
    );
    let body = server.body().await;
    assert_eq!((body.get("include"), &body["store"]), (None, &json!(false)));
}
