//! Malformed, incomplete and endless responses.

use std::time::Duration;

use engine::llm::LlmErrorKind;
use serde_json::{Value, json};

use super::scene::{config, events, message};
use crate::scene::complete;
use crate::server::{Reply, Server, ServerEvent};

async fn error_of(reply: Reply) -> (LlmErrorKind, String) {
    let server = Server::start(vec![reply]).await;
    let error = complete(&config(&server)).await.unwrap_err();
    (error.kind, error.detail)
}

fn response() -> Value {
    message(&json!([
        { "type": "thinking", "thinking": "hmm", "signature": "s" },
        { "type": "text", "text": "Hello" },
        { "type": "tool_use", "id": "toolu_1", "name": "execute_bash", "input": { "command": "ls" } },
    ]))
}

#[tokio::test]
async fn stream_is_incomplete_when_cut_before_its_stop_reason() {
    let events = events(&response());
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    for end in 0..events.len() {
        let server = Server::start(vec![Reply::stream(&events[..end])]).await;
        let result = complete(&config(&server)).await;
        if end == events.len() - 1 {
            // Only `message_stop` is missing.
            assert_eq!(result.unwrap().response.message.text, "Hello");
        } else {
            assert_eq!(
                result.unwrap_err().kind,
                LlmErrorKind::StreamCut,
                "after {end} events"
            );
        }
    }
}

#[tokio::test]
async fn response_is_incomplete_when_cut_within_an_event() {
    let events = events(&response()).join("\n\ndata: ");
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: ";
    let end = events.floor_char_boundary(events.len() / 2);
    let (kind, _) = error_of(Reply::cut(&format!("{head}{}", &events[..end]))).await;
    // The last event is incomplete JSON.
    assert!(
        matches!(kind, LlmErrorKind::StreamCut | LlmErrorKind::Malformed),
        "{kind:?}"
    );
    assert!(kind.is_transient());
}

#[tokio::test]
async fn call_is_retried_when_the_response_is_cut() {
    let events = events(&response());
    let cut = Reply::stream(&[events[0].as_str()]);
    let server = Server::start(vec![cut, Reply::json(200, &response())]).await;
    let mut config = config(&server);
    config.retry.num_retries = 2;
    assert_eq!(
        complete(&config).await.unwrap().response.message.text,
        "Hello"
    );
}

#[tokio::test]
async fn html_page_means_a_wrong_address() {
    let page = "<!doctype html><html><head><title>Sign in</title></head></html>";
    let (kind, detail) = error_of(Reply::new(200, &[("content-type", "text/html")], page)).await;
    assert_eq!(kind, LlmErrorKind::WrongAddress);
    assert!(
        detail.contains("status 200, an HTML page: Sign in; "),
        "{detail}"
    );
}

#[tokio::test]
async fn nonsense_is_malformed() {
    for body in [
        "",
        "nonsense",
        "[]",
        "{}",
        r#"{"content": "hi"}"#,
        r#"{"type": "message"}"#,
    ] {
        let (kind, detail) = error_of(Reply::new(200, &[], body)).await;
        assert_eq!(kind, LlmErrorKind::Malformed, "{body}: {detail}");
    }
}

#[tokio::test]
async fn nonsense_in_events_and_blocks_is_ignored() {
    let mut events = events(&response());
    for (place, nonsense) in [
        (
            1,
            r#"{"type":"content_block_delta","index":18446744073709551615,"delta":{"type":"text_delta","text":7}}"#,
        ),
        (1, r#"{"type":"content_block_delta","delta":null}"#),
        (
            1,
            r#"{"type":"content_block_start","index":-1,"content_block":[]}"#,
        ),
        (1, r#"{"type":7}"#),
        (1, "[]"),
        (1, "null"),
    ] {
        events.insert(place, nonsense.to_owned());
    }
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let server = Server::start(vec![Reply::stream(&events)]).await;
    let response = complete(&config(&server)).await.unwrap().response;
    assert_eq!(
        (
            response.message.text.as_str(),
            response.message.tool_calls.len()
        ),
        ("Hello", 1)
    );

    let blocks = json!([7, null, {}, { "type": 7 }, { "type": "text" }, { "type": "tool_use" }]);
    let server = Server::start(vec![Reply::json(200, &message(&blocks))]).await;
    let response = complete(&config(&server)).await.unwrap().response;
    assert_eq!(response.message.tool_calls[0].arguments, "null");
}

#[tokio::test]
async fn refusal_of_the_model_is_a_content_policy_error() {
    for content in [json!([]), json!([{ "type": "text", "text": "To begin" }])] {
        let mut refused = message(&content);
        refused["stop_reason"] = "refusal".into();
        refused["stop_details"] = json!({ "type": "refusal", "category": "cyber" });
        let (kind, detail) = error_of(Reply::json(200, &refused)).await;
        assert_eq!(kind, LlmErrorKind::ContentPolicy);
        assert!(
            detail.starts_with("the provider stopped the response (cyber)"),
            "{detail}"
        );
    }
}

#[tokio::test]
async fn endless_response_is_bounded() {
    let delta = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "x".repeat(1 << 20) } });
    let (kind, detail) = error_of(Reply::stream(&vec![delta.to_string().as_str(); 33])).await;
    assert_eq!(kind, LlmErrorKind::Malformed);
    assert_eq!(detail, "the response is longer than 33554432 bytes");
}

#[tokio::test]
async fn silent_server_is_a_timeout() {
    let events = events(&response());
    let server = Server::start(vec![Reply::stream(&[events[0].as_str()]).then_silence()]).await;
    let mut config = config(&server);
    config.timeouts.idle = Duration::from_millis(100);
    let error = complete(&config).await.unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (LlmErrorKind::Timeout, "no data for 100ms")
    );
}

#[tokio::test]
async fn connection_closes_when_the_call_is_dropped() {
    let events = events(&response());
    for reply in [
        Reply::silence(),
        Reply::stream(&[events[0].as_str()]).then_silence(),
    ] {
        let mut server = Server::start(vec![reply]).await;
        let config = config(&server);
        let call = tokio::spawn(async move { complete(&config).await });
        server.body().await;
        call.abort();
        assert!(matches!(server.next().await, ServerEvent::Disconnected));
    }
}
