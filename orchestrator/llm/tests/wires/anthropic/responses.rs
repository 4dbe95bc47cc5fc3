//! Successful responses, with and without streaming, and how they are sent back.

use engine::llm::{ChatMessage, Completion, Llm as _, LlmProgress, LlmRequest, MessagePart};
use llm::ProviderLlm;
use serde_json::{Value, json};

use super::scene::{config, events, message};
use crate::scene::{KEY, complete, complete_with_progress, request};
use crate::server::{Reply, Server, ServerEvent};

/// $0.80 a million in, $1 written to the cache, $0.08 read from it, $4 out.
const COST: f64 = (1000.0 * 0.8 + 200.0 + 3000.0 * 0.08 + 100.0 * 4.0) / 1e6;

/// Thinking between calls, and a block of an unknown kind.
fn all_block_kinds() -> Value {
    json!([
        { "type": "thinking", "thinking": "I should look first. Ü", "signature": "c2lnbmF0dXJl" },
        { "type": "redacted_thinking", "data": "b3BhcXVl" },
        { "type": "text", "text": "I look around." },
        { "type": "tool_use", "id": "toolu_1", "name": "execute_bash", "input": { "command": "ls -l 'ü'" } },
        { "type": "thinking", "thinking": "And then?", "signature": "second" },
        { "type": "novel_block", "what": [1, { "of": "it" }] },
        { "type": "tool_use", "id": "toolu_2", "name": "execute_bash", "input": {} },
    ])
}

fn stream(message: &Value) -> Reply {
    let events = events(message);
    Reply::stream(&events.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the stored response without its time.
fn stored_without_time(completion: Completion) -> Value {
    let mut response = completion.response.to_stored();
    response["created"] = Value::Null;
    response
}

#[tokio::test]
async fn request_has_anthropics_format() {
    let text = json!([{ "type": "text", "text": "Hello" }]);
    let mut server = Server::start(vec![Reply::json(200, &message(&text))]).await;
    let completion = complete(&config(&server)).await.unwrap();
    assert_eq!(completion.response.message.text, "Hello");

    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    assert!(head.starts_with("POST /v1/messages HTTP/1.1"), "{head}");
    assert!(
        head.contains(&format!("x-api-key: {KEY}")) && !head.contains("authorization"),
        "{head}"
    );
    assert!(
        head.contains("anthropic-version: 2023-06-01") && !head.contains("anthropic-beta"),
        "{head}"
    );
    let mark = json!({ "type": "ephemeral" });
    assert_eq!(
        body,
        json!({
            "model": "claude-3-5-haiku-latest", "stream": true, "max_tokens": 8192, "temperature": 0.0,
            "system": [{ "type": "text", "text": "be good", "cache_control": mark }],
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "hi", "cache_control": mark }] }],
            "tools": [{
                "name": "execute_bash", "description": "runs", "input_schema": { "type": "object", "properties": {} },
                "cache_control": mark,
            }],
        })
    );
}

#[tokio::test]
async fn usage_and_cost_include_the_cache() {
    let server = Server::start(vec![Reply::json(200, &message(&json!([])))]).await;
    let completion = complete(&config(&server)).await.unwrap();
    let usage = completion.usage;
    assert_eq!(
        (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.per_turn_token
        ),
        (4200, 100, 4300)
    );
    assert_eq!(
        (usage.cache_read_tokens, usage.cache_write_tokens),
        (3000, 200)
    );
    assert_eq!(
        (usage.response_id.as_str(), usage.context_window),
        ("msg_1", 200_000)
    );
    assert!(
        (completion.cost.unwrap() - COST).abs() < 1e-12,
        "{:?}",
        completion.cost
    );
}

#[tokio::test]
async fn stream_results_in_the_same_response() {
    for content in [
        all_block_kinds(),
        json!([]),
        json!([{ "type": "text", "text": "Hello" }]),
    ] {
        let message = message(&content);
        let server = Server::start(vec![Reply::json(200, &message), stream(&message)]).await;
        let unstreamed = complete(&config(&server)).await.unwrap();
        let streamed = complete(&config(&server)).await.unwrap();
        assert_eq!(
            (&unstreamed.usage, unstreamed.cost),
            (&streamed.usage, streamed.cost)
        );
        assert_eq!(
            stored_without_time(unstreamed),
            stored_without_time(streamed)
        );
    }
}

#[tokio::test]
async fn blocks_of_a_message_are_sent_back_unchanged() {
    let mut server = Server::start(vec![stream(&message(&all_block_kinds()))]).await;
    let mut config = config(&server);
    config.caching_prompt = false;
    let llm = ProviderLlm::new(&config).unwrap();
    let response = llm.complete(&request(), &|_| ()).await.unwrap().response;
    server.body().await;

    let results =
        response
            .message
            .tool_calls
            .clone()
            .into_iter()
            .map(|call| ChatMessage::ToolResult {
                call_id: call.id,
                name: call.name,
                parts: vec![MessagePart::Text("done".into())],
            });
    let mut messages = vec![
        ChatMessage::User(vec![MessagePart::Text("go".into())]),
        ChatMessage::Assistant(response.message),
    ];
    messages.extend(results);
    llm.complete(
        &LlmRequest {
            messages,
            tools: vec![],
        },
        &|_| (),
    )
    .await
    .unwrap();
    let body = server.body().await;
    assert_eq!(
        body["messages"][1],
        json!({ "role": "assistant", "content": all_block_kinds() })
    );
    let result = |id| json!({ "type": "tool_result", "tool_use_id": id, "content": [{ "type": "text", "text": "done" }] });
    assert_eq!(
        body["messages"][2],
        json!({ "role": "user", "content": [result("toolu_1"), result("toolu_2")] })
    );
}

#[tokio::test]
async fn text_and_thinking_are_reported_during_the_stream() {
    let server = Server::start(vec![stream(&message(&all_block_kinds()))]).await;
    let (_, reports) = complete_with_progress(&config(&server)).await;
    let (mut text, mut reasoning) = (String::new(), String::new());
    for report in reports {
        match report {
            LlmProgress::Text(chunk) => text += &chunk,
            LlmProgress::Reasoning(chunk) => reasoning += &chunk,
            LlmProgress::Retrying { .. } => panic!("no attempt failed"),
        }
    }
    assert_eq!(
        (text.as_str(), reasoning.as_str()),
        ("I look around.", "I should look first. ÜAnd then?")
    );
}

#[tokio::test]
async fn connection_closes_after_the_end_of_the_stream() {
    let text = json!([{ "type": "text", "text": "Hello" }]);
    let mut server = Server::start(vec![stream(&message(&text)).then_silence()]).await;
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
async fn interleaved_thinking_is_requested() {
    let mut server = Server::start(vec![Reply::json(200, &message(&json!([])))]).await;
    let mut config = config(&server);
    config.reasoning_effort = Some("low".into());
    complete(&config).await.unwrap();
    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    assert!(
        head.contains("anthropic-beta: interleaved-thinking-2025-05-14"),
        "{head}"
    );
    assert_eq!(
        body["thinking"],
        json!({ "type": "enabled", "budget_tokens": 2048 })
    );
    assert_eq!(body.get("temperature"), None);
}
