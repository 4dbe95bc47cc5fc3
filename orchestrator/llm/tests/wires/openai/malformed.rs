//! Malformed, incomplete and endless responses.

use std::time::Duration;

use engine::llm::LlmErrorKind;
use serde_json::json;
use tokio::net::TcpListener;

use crate::scene::{complete, config, response_body};
use crate::server::{Reply, Server, ServerEvent};

/// A timeout that loopback does not exceed, and that a test can wait for.
const SHORT: Duration = Duration::from_millis(100);

async fn error_of(reply: Reply) -> (LlmErrorKind, String) {
    let server = Server::start(vec![reply]).await;
    let mut config = config(&server);
    config.timeouts.headers = SHORT * 20;
    config.timeouts.idle = SHORT;
    let error = complete(&config).await.unwrap_err();
    (error.kind, error.detail)
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
        r#"{"choices": []}"#,
        r#"{"choices": [{"message": 7}]}"#,
    ] {
        let (kind, detail) = error_of(Reply::new(200, &[], body)).await;
        assert_eq!(kind, LlmErrorKind::Malformed, "{body}: {detail}");
    }
    let (kind, _) = error_of(Reply::stream(&["nonsense"])).await;
    assert_eq!(kind, LlmErrorKind::Malformed);
}

#[tokio::test]
async fn filtered_response_is_a_content_policy_error() {
    let body =
        json!({ "choices": [{ "finish_reason": "content_filter", "message": { "content": "" } }] });
    assert_eq!(
        error_of(Reply::json(200, &body)).await.0,
        LlmErrorKind::ContentPolicy
    );
}

#[tokio::test]
async fn stream_without_an_end_is_cut() {
    let start = r#"{"choices":[{"index":0,"delta":{"content":"Hel"}}]}"#;
    for events in [&[start][..], &[]] {
        assert_eq!(
            error_of(Reply::stream(events)).await.0,
            LlmErrorKind::StreamCut
        );
    }
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:";
    assert_eq!(
        error_of(Reply::cut(chunked)).await.0,
        LlmErrorKind::StreamCut
    );
}

#[tokio::test]
async fn body_without_its_end_is_cut() {
    let (kind, _) = error_of(Reply::cut(
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"id\":",
    ))
    .await;
    assert_eq!(kind, LlmErrorKind::StreamCut);
}

#[tokio::test]
async fn closed_connection_is_a_connection_error() {
    assert_eq!(error_of(Reply::cut("")).await.0, LlmErrorKind::Connection);
}

#[tokio::test]
async fn missing_server_is_a_connection_error() {
    let server = Server::start(vec![]).await;
    let mut config = config(&server);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    config.base_url = Some(format!("http://{address}/v1?key=not-logged"));
    drop(listener);
    let error = complete(&config).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Connection);
    assert_eq!(
        error.detail,
        format!("{address}: Connection refused (os error 111)")
    );
}

#[tokio::test]
async fn silent_server_is_a_timeout() {
    let (kind, detail) = error_of(Reply::stream(&[]).then_silence()).await;
    assert_eq!(
        (kind, detail.as_str()),
        (LlmErrorKind::Timeout, "no data for 100ms")
    );

    let server = Server::start(vec![Reply::silence()]).await;
    let mut config = config(&server);
    config.timeouts.headers = SHORT;
    let error = complete(&config).await.unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (LlmErrorKind::Timeout, "no headers within 100ms")
    );

    config.timeouts.headers = SHORT * 20;
    config.timeouts.total = SHORT;
    let server = Server::start(vec![Reply::silence()]).await;
    config.base_url = Some(server.url.clone());
    let error = complete(&config).await.unwrap_err();
    assert_eq!(
        (error.kind, error.detail.as_str()),
        (LlmErrorKind::Timeout, "no complete response within 100ms")
    );
}

#[tokio::test]
async fn finished_stream_is_complete_when_the_server_is_silent() {
    let finished =
        r#"{"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}"#;
    let server = Server::start(vec![Reply::stream(&[finished]).then_silence()]).await;
    let mut config = config(&server);
    config.timeouts.idle = SHORT;
    assert_eq!(
        complete(&config).await.unwrap().response.message.text,
        "Hello"
    );
}

#[tokio::test]
async fn endless_response_is_bounded() {
    let event = json!({ "choices": [{ "index": 0, "delta": { "content": "x".repeat(1 << 20) } }] })
        .to_string();
    let (kind, detail) = error_of(Reply::stream(&vec![event.as_str(); 33])).await;
    assert_eq!(kind, LlmErrorKind::Malformed);
    assert_eq!(detail, "the response is longer than 33554432 bytes");
}

#[tokio::test]
async fn values_of_a_response_are_bounded() {
    let many = |count: usize| json!({ "novel": vec![json!({ "": 0 }); count] }).to_string();
    let (kind, detail) = error_of(Reply::stream(&[&many(60_000)])).await;
    assert_eq!(kind, LlmErrorKind::Malformed);
    assert!(
        detail.contains("it has more than 100000 values"),
        "{detail}"
    );
    let choice = json!({ "choices": [{ "delta": { "novel": vec![json!({ "": 0 }); 20_000] } }] });
    let (kind, detail) = error_of(Reply::stream(&[choice.to_string().as_str(); 8])).await;
    assert_eq!(kind, LlmErrorKind::Malformed);
    assert_eq!(detail, "the response has more than 100000 values");
    // Of many calls, only the first ones are read.
    let calls: Vec<_> = (0..30_000).map(|index| json!({ "index": index })).collect();
    let calls =
        json!({ "choices": [{ "delta": { "tool_calls": calls }, "finish_reason": "stop" }] });
    let server = Server::start(vec![Reply::stream(&[calls.to_string().as_str()])]).await;
    let response = complete(&config(&server)).await.unwrap().response;
    assert_eq!(response.message.tool_calls.len(), 30_000);
}

#[tokio::test]
async fn connection_closes_when_the_call_is_dropped() {
    for reply in [
        Reply::silence(),
        Reply::stream(&[r#"{"choices":[]}"#]).then_silence(),
    ] {
        let mut server = Server::start(vec![reply]).await;
        let config = config(&server);
        let call = tokio::spawn(async move { complete(&config).await });
        server.body().await;
        call.abort();
        assert!(matches!(server.next().await, ServerEvent::Disconnected));
    }
}

#[tokio::test]
async fn call_is_retried_when_the_response_is_cut() {
    let cut = Reply::stream(&[r#"{"choices":[{"index":0,"delta":{"content":"Hel"}}]}"#]);
    let server = Server::start(vec![cut, Reply::json(200, &response_body("Hello"))]).await;
    let mut config = config(&server);
    config.retry.num_retries = 2;
    assert_eq!(
        complete(&config).await.unwrap().response.message.text,
        "Hello"
    );
}
