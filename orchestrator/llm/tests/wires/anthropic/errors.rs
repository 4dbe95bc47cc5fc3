//! Error responses, and which of them are retried.

use std::time::Duration;

use engine::llm::{LlmErrorKind, LlmProgress};
use serde_json::{Value, json};

use super::scene::{config, events, message};
use crate::scene::{KEY, complete, complete_with_progress};
use crate::server::{Reply, Server};

fn error(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
}

#[tokio::test]
async fn each_error_response_has_its_kind() {
    let request = "invalid_request_error";
    for (status, kind, message, expected) in [
        (
            401,
            "authentication_error",
            "invalid x-api-key",
            LlmErrorKind::Authentication,
        ),
        (
            403,
            "permission_error",
            "not yours",
            LlmErrorKind::Permission,
        ),
        (
            404,
            "not_found_error",
            "model: claude-9",
            LlmErrorKind::UnknownModel,
        ),
        (
            413,
            "request_too_large",
            "Request exceeds the maximum size",
            LlmErrorKind::ContextWindowExceeded,
        ),
        (
            429,
            "rate_limit_error",
            "slow down",
            LlmErrorKind::RateLimited,
        ),
        (
            400,
            request,
            "prompt is too long: 210000 tokens > 200000 maximum",
            LlmErrorKind::ContextWindowExceeded,
        ),
        (
            400,
            request,
            "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000",
            LlmErrorKind::ContextWindowExceeded,
        ),
        (
            400,
            request,
            "Your credit balance is too low",
            LlmErrorKind::OutOfCredit,
        ),
        (
            400,
            request,
            "Output blocked by content filtering policy",
            LlmErrorKind::ContentPolicy,
        ),
        (
            400,
            request,
            "messages.3: tool_use ids were found without results",
            LlmErrorKind::BadRequest,
        ),
        (
            500,
            "api_error",
            "Internal server error",
            LlmErrorKind::Unavailable,
        ),
        (
            529,
            "overloaded_error",
            "Overloaded",
            LlmErrorKind::Unavailable,
        ),
    ] {
        let server = Server::start(vec![Reply::json(status, &error(kind, message))]).await;
        let error = complete(&config(&server)).await.unwrap_err();
        assert_eq!(error.kind, expected, "{status} {message}");
    }
}

#[tokio::test]
async fn overload_within_a_stream_is_retried_and_reported() {
    let response = message(&json!([{ "type": "text", "text": "Hello" }]));
    let mut events = events(&response);
    events.truncate(4);
    events.push(error("overloaded_error", "Overloaded").to_string());
    let cut = Reply::stream(&events.iter().map(String::as_str).collect::<Vec<_>>());
    let mut server = Server::start(vec![cut, Reply::json(200, &response)]).await;
    let mut config = config(&server);
    config.retry.num_retries = 2;
    let (result, reports) = complete_with_progress(&config).await;
    assert_eq!(result.unwrap().response.message.text, "Hello");
    let retries = reports.iter().filter(|reports| {
        matches!(reports, LlmProgress::Retrying { attempt: 2, error, .. } if error.kind == LlmErrorKind::Unavailable)
    });
    assert_eq!((retries.count(), server.requests()), (1, 2));
}

#[tokio::test]
async fn requested_delay_is_kept() {
    let body = error("rate_limit_error", "slow down").to_string();
    let limited = Reply::new(
        429,
        &[
            ("content-type", "application/json"),
            ("retry-after", "0.02"),
        ],
        &body,
    );
    let server = Server::start(vec![limited, Reply::json(200, &message(&json!([])))]).await;
    let mut config = config(&server);
    config.retry.num_retries = 2;
    let (result, reports) = complete_with_progress(&config).await;
    result.unwrap();
    let [LlmProgress::Retrying { after, .. }] = &reports[..] else {
        panic!("{reports:?}")
    };
    assert!(*after >= Duration::from_millis(20), "{after:?}");
}

#[tokio::test]
async fn key_is_not_in_the_error() {
    let refusal = error("authentication_error", &format!("invalid x-api-key: {KEY}"));
    let server = Server::start(vec![Reply::json(401, &refusal)]).await;
    let error = complete(&config(&server)).await.unwrap_err();
    assert_eq!(error.detail, "status 401: invalid x-api-key: [redacted]");
}

#[tokio::test]
async fn refused_parameter_is_dropped() {
    let refusal = error(
        "invalid_request_error",
        "`temperature` is deprecated for this model.",
    );
    let response = Reply::json(200, &message(&json!([])));
    let mut server = Server::start(vec![Reply::json(400, &refusal), response]).await;
    complete(&config(&server)).await.unwrap();
    assert_eq!(server.body().await["temperature"], 0.0);
    assert_eq!(server.body().await.get("temperature"), None);
}
