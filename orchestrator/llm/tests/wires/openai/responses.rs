//! Successful responses, with and without streaming.

use engine::llm::{LlmProgress, ToolCall};
use protocol::metrics::TokenUsage;
use serde_json::{Value, json};

use crate::scene::{KEY, complete, complete_with_progress, config, response_body};
use crate::server::{Reply, Server, ServerEvent};

/// GPT-4o: $2.50 a million in, $10 out.
const COST: f64 = (100.0 * 2.5 + 10.0 * 10.0) / 1e6;

const RESPONSE_CHUNKS: [&str; 5] = [
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1759489200,"model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1759489200,"model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1759489200,"model":"gpt-4o-2024-08-06","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1759489200,"model":"gpt-4o-2024-08-06","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":0}}}"#,
    "[DONE]",
];

fn same_cost(cost: Option<f64>, expected: f64) -> bool {
    cost.is_some_and(|cost| (cost - expected).abs() < 1e-12)
}

#[tokio::test]
async fn response_is_stored_completely() {
    let mut server = Server::start(vec![Reply::json(200, &response_body("Hello"))]).await;
    let completion = complete(&config(&server)).await.unwrap();
    assert_eq!(completion.response.to_stored(), response_body("Hello"));
    let usage = TokenUsage {
        model: "openai/gpt-4o".into(),
        prompt_tokens: 100,
        completion_tokens: 10,
        context_window: 128_000,
        per_turn_token: 110,
        response_id: "chatcmpl-1".into(),
        ..TokenUsage::default()
    };
    assert_eq!(completion.usage, usage);
    assert!(same_cost(completion.cost, COST), "{:?}", completion.cost);

    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    assert!(
        head.starts_with("POST /v1/chat/completions HTTP/1.1"),
        "{head}"
    );
    assert!(
        head.contains(&format!("authorization: Bearer {KEY}")),
        "{head}"
    );
    assert_eq!(
        body,
        json!({
            "model": "gpt-4o", "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.0,
            "messages": [{ "role": "system", "content": "be good" }, { "role": "user", "content": "hi" }],
            "tools": [{
                "type": "function",
                "function": { "name": "execute_bash", "description": "runs", "parameters": { "type": "object", "properties": {} } },
            }],
        })
    );
}

#[tokio::test]
async fn stream_results_in_the_same_response() {
    let server = Server::start(vec![Reply::stream(&RESPONSE_CHUNKS)]).await;
    let completion = complete(&config(&server)).await.unwrap();
    assert_eq!(completion.response.to_stored(), response_body("Hello"));
    assert!(same_cost(completion.cost, COST), "{:?}", completion.cost);
}

#[tokio::test]
async fn text_and_reasoning_are_reported_during_the_stream() {
    for name in ["reasoning_content", "reasoning"] {
        let thought = json!({ "choices": [{ "index": 0, "delta": { (name): "hm" } }] }).to_string();
        let events = [&[thought.as_str()][..], &RESPONSE_CHUNKS].concat();
        let server = Server::start(vec![Reply::stream(&events)]).await;
        let (result, reports) = complete_with_progress(&config(&server)).await;
        assert_eq!(result.unwrap().response.message.text, "Hello");
        let text_of = |is_text| {
            let chunks = reports.iter().filter_map(move |progress| match progress {
                LlmProgress::Text(chunk) if is_text => Some(chunk.as_str()),
                LlmProgress::Reasoning(chunk) if !is_text => Some(chunk.as_str()),
                _ => None,
            });
            chunks.collect::<String>()
        };
        assert_eq!(
            (text_of(true), text_of(false)),
            ("Hello".to_owned(), "hm".to_owned())
        );
    }
}

#[tokio::test]
async fn connection_closes_after_the_end_of_the_stream() {
    let mut server = Server::start(vec![Reply::stream(&RESPONSE_CHUNKS).then_silence()]).await;
    assert_eq!(
        complete(&config(&server))
            .await
            .unwrap()
            .response
            .message
            .text,
        "Hello"
    );
    server.body().await;
    assert!(matches!(server.next().await, ServerEvent::Disconnected));
}

#[tokio::test]
async fn stream_is_detected_when_its_content_type_is_text() {
    let body: String = RESPONSE_CHUNKS
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    let server = Server::start(vec![Reply::new(
        200,
        &[("content-type", "text/plain")],
        &body,
    )])
    .await;
    assert_eq!(
        complete(&config(&server))
            .await
            .unwrap()
            .response
            .to_stored(),
        response_body("Hello")
    );
}

#[tokio::test]
async fn cost_is_estimated_when_finished_stream_ends_before_usage() {
    let server = Server::start(vec![Reply::stream(&RESPONSE_CHUNKS[..3])]).await;
    let completion = complete(&config(&server)).await.unwrap();
    assert_eq!(
        (
            completion.response.message.text.as_str(),
            completion.usage.completion_tokens
        ),
        ("Hello", 1)
    );
    assert!(completion.usage.prompt_tokens > 0 && completion.cost.unwrap() > 0.0);
}

#[tokio::test]
async fn streamed_calls_keep_the_arguments_of_the_model() {
    let server = Server::start(vec![Reply::stream(&[
        r#"{"id":"r","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"execute_bash","arguments":""}}]}}]}"#,
        r#"{"id":"r","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\": \"l"}}]}}]}"#,
        r#"{"id":"r","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"s\"}"}}]}}]}"#,
        r#"{"id":"r","choices":[{"index":0,"delta":{"tool_calls":[{"id":"b","function":{"name":"execute_bash","arguments":"{\"comm"}}]}}]}"#,
        r#"{"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ])])
    .await;
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.into(),
        name: "execute_bash".into(),
        arguments: arguments.into(),
        ..Default::default()
    };
    let response = complete(&config(&server)).await.unwrap().response;
    assert_eq!(
        response.message.tool_calls,
        [call("a", r#"{"command": "ls"}"#), call("b", r#"{"comm"#)]
    );
}

#[tokio::test]
async fn cost_reported_by_the_proxy_is_used() {
    for header in [
        "x-litellm-response-cost",
        "llm_provider-x-litellm-response-cost",
    ] {
        let headers = [("content-type", "application/json"), (header, "0.125")];
        let server = Server::start(vec![Reply::new(
            200,
            &headers,
            &response_body("x").to_string(),
        )])
        .await;
        assert_eq!(complete(&config(&server)).await.unwrap().cost, Some(0.125));
    }
}

#[tokio::test]
async fn cost_is_unknown_when_the_model_has_no_price() {
    let server = Server::start(vec![Reply::json(200, &response_body("x"))]).await;
    let mut config = config(&server);
    config.model = "my-own-model".into();
    assert_eq!(complete(&config).await.unwrap().cost, None);
}

#[tokio::test]
async fn no_key_is_sent_when_none_is_configured() {
    let mut server = Server::start(vec![Reply::json(200, &response_body("x"))]).await;
    let mut config = config(&server);
    config.api_key = None;
    complete(&config).await.unwrap();
    let ServerEvent::Request { head, .. } = server.next().await else {
        panic!("no request")
    };
    assert!(!head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn refused_parameter_is_dropped() {
    let error = json!({ "error": {
        "message": "Unsupported value: 'temperature' does not support 0 with this model.",
        "type": "invalid_request_error", "param": "temperature", "code": "unsupported_value",
    }});
    let mut server = Server::start(vec![
        Reply::json(400, &error),
        Reply::json(200, &response_body("x")),
    ])
    .await;
    complete(&config(&server)).await.unwrap();
    assert_eq!(server.body().await["temperature"], 0.0);
    assert_eq!(server.body().await["temperature"], Value::Null);
}
