//! Error responses, and which of them are retried.

use std::time::Duration;

use engine::llm::{AssistantMessage, ChatMessage, Llm as _, LlmErrorKind, LlmProgress};
use llm::{LlmConfig, ProviderLlm};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::scene::{KEY, complete, complete_with_progress, config, request, response_body};
use crate::server::{Reply, Server};

fn error(message: &str, code: &str) -> Value {
    json!({ "error": { "message": message, "type": "x", "param": null, "code": code } })
}

#[tokio::test]
async fn each_error_response_has_its_kind() {
    let quota = error("You exceeded your current quota", "insufficient_quota");
    let window = error(
        "This model's maximum context length is 8192 tokens.",
        "context_length_exceeded",
    );
    let overloaded = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    for (status, body, kind) in [
        (
            401,
            &error("Incorrect API key provided", "invalid_api_key"),
            LlmErrorKind::Authentication,
        ),
        (403, &error("not yours", "x"), LlmErrorKind::Permission),
        (
            404,
            &error("The model `x` does not exist", "model_not_found"),
            LlmErrorKind::UnknownModel,
        ),
        (
            429,
            &error("slow down", "rate_limit_exceeded"),
            LlmErrorKind::RateLimited,
        ),
        (429, &quota, LlmErrorKind::OutOfCredit),
        (400, &window, LlmErrorKind::ContextWindowExceeded),
        (500, &error("oops", "x"), LlmErrorKind::Unavailable),
        (500, &overloaded, LlmErrorKind::Unavailable),
        (529, &overloaded, LlmErrorKind::Unavailable),
        (200, &error("slow down", "429"), LlmErrorKind::RateLimited),
        (302, &json!({}), LlmErrorKind::WrongAddress),
    ] {
        let server = Server::start(vec![Reply::json(status, body)]).await;
        let error = complete(&config(&server)).await.unwrap_err();
        assert_eq!(error.kind, kind, "{status} {body}");
    }
}

#[tokio::test]
async fn missing_key_is_not_called_a_wrong_one() {
    let body = error("Incorrect API key provided", "invalid_api_key");
    let server = Server::start(vec![Reply::json(401, &body), Reply::json(401, &body)]).await;
    let mut config = config(&server);
    config.api_key = None;
    let error = complete(&config).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::MissingKey);
    assert!(
        error
            .detail
            .starts_with("give one as LLM_API_KEY, as api_key under [llm]"),
        "{error}"
    );
    // It may hold the key.
    config.headers = [("X-Api-Key".into(), "a-wrong-key".into())].into();
    assert_eq!(
        complete(&config).await.unwrap_err().kind,
        LlmErrorKind::Authentication
    );
}

#[tokio::test]
async fn server_of_plain_http_is_named_when_tls_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&Server::start(Vec::new()).await);
    config.base_url = Some(format!("https://{}/v1", listener.local_addr().unwrap()));
    let answer = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        let _hello = connection.read(&mut [0; 4096]).await.unwrap();
        connection
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
        connection
    };
    let (result, _connection) = tokio::join!(complete(&config), answer);
    let error = result.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Connection);
    assert!(
        error
            .detail
            .contains("does not speak TLS: should base_url start with http://?"),
        "{error}"
    );
}

#[tokio::test]
async fn error_within_a_stream_is_classified() {
    let server = Server::start(vec![Reply::stream(&[
        r#"{"choices":[{"index":0,"delta":{"content":"Hel"}}]}"#,
        r#"{"error":{"message":"Overloaded","type":"overloaded_error"}}"#,
    ])])
    .await;
    assert_eq!(
        complete(&config(&server)).await.unwrap_err().kind,
        LlmErrorKind::Unavailable
    );
}

#[tokio::test]
async fn rate_limit_is_waited_for_and_reported() {
    let body = error("slow down", "rate_limit_exceeded").to_string();
    let limited = Reply::new(
        429,
        &[
            ("content-type", "application/json"),
            ("retry-after-ms", "20"),
        ],
        &body,
    );
    let mut server = Server::start(vec![limited, Reply::json(200, &response_body("Hello"))]).await;
    let mut config = config(&server);
    config.retry.num_retries = 3;
    let (result, reports) = complete_with_progress(&config).await;
    assert_eq!(result.unwrap().response.message.text, "Hello");
    let [
        LlmProgress::Retrying {
            attempt: 2,
            attempts: 3,
            after,
            error,
        },
    ] = &reports[..]
    else {
        panic!("{reports:?}");
    };
    assert_eq!(error.kind, LlmErrorKind::RateLimited);
    assert!(error.detail.contains("slow down"), "{error}");
    assert!(*after >= Duration::from_millis(20), "{after:?}");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn request_is_not_sent_when_it_exceeds_the_context_window() {
    let mut server = Server::start(vec![Reply::json(200, &response_body("Hello"))]).await;
    let mut config = config(&server);
    config.max_input_tokens = Some(2);
    let error = complete(&config).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::ContextWindowExceeded);
    assert!(
        error
            .detail
            .ends_with("tokens, and openai/gpt-4o accepts 2"),
        "{error}"
    );
    assert_eq!(server.requests(), 0);
    config.max_input_tokens = Some(1000);
    complete(&config).await.unwrap();
}

#[tokio::test]
async fn request_is_not_sent_when_it_is_large_without_tokens() {
    let mut server = Server::start(vec![Reply::json(200, &response_body("Hello"))]).await;
    let llm = ProviderLlm::new(&config(&server)).unwrap();
    let reasoning = |bytes| json!({ "content": "x", "reasoning_content": "r".repeat(bytes) });
    let mut request = request();
    for (bytes, is_sent) in [(1 << 20, true), (33 << 20, false)] {
        let message = AssistantMessage::from_stored(reasoning(bytes));
        request.messages.push(ChatMessage::Assistant(message));
        let kind = llm
            .complete(&request, &|_| ())
            .await
            .err()
            .map(|error| error.kind);
        let expected = (!is_sent).then_some(LlmErrorKind::ContextWindowExceeded);
        assert_eq!((kind, server.requests()), (expected, usize::from(is_sent)));
    }
}

#[tokio::test]
async fn interim_responses_without_an_end_time_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        std::io::Read::read(&mut client, &mut [0; 1 << 10]).unwrap();
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
        // Until the client closes the connection.
        while std::io::Write::write_all(&mut client, interim.as_bytes()).is_ok() {}
    });
    let mut config = LlmConfig {
        base_url: Some(url),
        ..LlmConfig::new("openai/gpt-4o")
    };
    config.timeouts.headers = Duration::from_secs(2);
    config.retry.num_retries = 1;
    let error = complete(&config).await.unwrap_err();
    assert_eq!(error.kind, LlmErrorKind::Timeout);
}

#[tokio::test]
async fn attempts_are_bounded() {
    let mut server = Server::start(vec![Reply::json(503, &json!({}))]).await;
    let mut config = config(&server);
    config.retry.num_retries = 4;
    let (result, reports) = complete_with_progress(&config).await;
    assert_eq!(
        (result.unwrap_err().kind, reports.len()),
        (LlmErrorKind::Unavailable, 3)
    );
    assert_eq!(server.requests(), 4);
}

#[tokio::test]
async fn wrong_key_is_neither_retried_nor_logged() {
    let body = error(
        &format!("Incorrect API key provided: {KEY}. {}", "x".repeat(1000)),
        "invalid_api_key",
    );
    let mut server = Server::start(vec![Reply::json(401, &body)]).await;
    let mut config = config(&server);
    config.retry.num_retries = 4;
    let error = complete(&config).await.unwrap_err();
    assert!(
        error
            .detail
            .starts_with("status 401: Incorrect API key provided: [redacted]. xxx"),
        "{error}"
    );
    assert!(
        error.detail.chars().count() <= 501 && !format!("{error:?}").contains(KEY),
        "{error:?}"
    );
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn long_requested_delay_is_returned() {
    let server = Server::start(vec![Reply::new(
        429,
        &[("llm_provider-retry-after", "3600")],
        "{}",
    )])
    .await;
    let mut config = config(&server);
    config.retry.num_retries = 5;
    let error = complete(&config).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(3600)));
    assert!(
        error.to_string().ends_with("; it asks to wait 3600 s"),
        "{error}"
    );
}
