//! Successful responses, with and without streaming, and how they are sent back.

use engine::llm::{
    AssistantMessage, ChatMessage, Completion, Llm as _, LlmProgress, LlmRequest, MessagePart,
};
use llm::ProviderLlm;
use serde_json::{Value, json};

use super::scene::{call_item, config, events, reasoning_item, response, stream, text_item};
use crate::scene::{KEY, complete, complete_with_progress, request};
use crate::server::{Reply, Server, ServerEvent};

/// GPT-5: $1.25 a million in, $0.125 read from the cache, $10 out.
const COST: f64 = (400.0 * 1.25 + 600.0 * 0.125 + 100.0 * 10.0) / 1e6;

/// Reasoning between calls, two messages, and an item of an unknown kind.
fn all_item_kinds() -> Value {
    let mut commentary = text_item("I look around.");
    commentary["phase"] = "commentary".into();
    json!([
        reasoning_item("rs_1", "I should look first. Ü"),
        commentary,
        call_item("call_1"),
        reasoning_item("rs_2", "And then?"),
        { "type": "novel_item", "id": "n_1", "what": [1, { "of": "it" }] },
        call_item("call_2"),
        text_item("So."),
    ])
}

/// Returns items as they are sent back.
fn sent_back(items: &Value) -> Vec<Value> {
    let mut items = items.as_array().unwrap().clone();
    for item in &mut items {
        let is_call = item["type"] == "function_call";
        let fields = item.as_object_mut().unwrap();
        fields.remove("status");
        if is_call {
            fields.remove("id");
        }
        if let Some(part) = item.pointer_mut("/content/0") {
            part.as_object_mut().unwrap().remove("logprobs");
        }
    }
    items
}

/// Sends back a response with the results of these calls, and returns their items.
async fn input_after(
    server: &mut Server,
    mut message: AssistantMessage,
    call_ids: &[&str],
) -> Vec<Value> {
    message
        .tool_calls
        .retain(|call| call_ids.contains(&call.id.as_str()));
    let parts = vec![
        MessagePart::Text("done".into()),
        MessagePart::Image("data:image/png;base64,AA==".into()),
    ];
    let results = message
        .tool_calls
        .clone()
        .into_iter()
        .map(|call| ChatMessage::ToolResult {
            call_id: call.id,
            name: call.name,
            parts: parts.clone(),
        });
    let start = request()
        .messages
        .into_iter()
        .chain([ChatMessage::Assistant(message)]);
    let messages = start.chain(results).collect();
    let llm = ProviderLlm::new(&config(server)).unwrap();
    llm.complete(
        &LlmRequest {
            messages,
            tools: vec![],
        },
        &|_| (),
    )
    .await
    .unwrap();
    let input = server.body().await["input"].take();
    input.as_array().unwrap()[1..].to_vec() // after the user's message
}

fn result(call_id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call_id, "output": [
        { "type": "input_text", "text": "done" },
        { "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto" },
    ] })
}

#[tokio::test]
async fn request_has_the_format_of_the_responses_api() {
    let mut server = Server::start(vec![Reply::json(
        200,
        &response(&json!([text_item("Hello")])),
    )])
    .await;
    let mut config = config(&server);
    config.reasoning_effort = Some("low".into());
    let Completion {
        response,
        usage,
        cost,
        ..
    } = complete(&config).await.unwrap();
    assert_eq!(
        (
            response.message.text.as_str(),
            response.finish_reason.as_str()
        ),
        ("Hello", "stop")
    );
    assert_eq!(
        (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cache_read_tokens
        ),
        (1000, 100, 600)
    );
    assert!((cost.unwrap() - COST).abs() < 1e-12, "{cost:?}");

    let ServerEvent::Request { head, body } = server.next().await else {
        panic!("no request")
    };
    assert!(head.starts_with("POST /v1/responses HTTP/1.1"), "{head}");
    assert!(
        head.contains(&format!("authorization: Bearer {KEY}")),
        "{head}"
    );
    assert_eq!(
        body,
        json!({
            "model": "gpt-5", "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
            "reasoning": { "effort": "low", "summary": "auto" },
            "instructions": "be good",
            "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "hi" }] }],
            "tools": [{
                "type": "function", "name": "execute_bash", "description": "runs", "parameters": { "type": "object", "properties": {} },
                "strict": false,
            }],
        })
    );
}

#[tokio::test]
async fn stream_results_in_the_same_response() {
    for output in [all_item_kinds(), json!([]), json!([text_item("Hello")])] {
        let response = response(&output);
        let mut without_output = events(&response);
        let last = without_output.last_mut().unwrap();
        let mut terminal: Value = serde_json::from_str(last).unwrap();
        terminal["response"]["output"] = json!([]);
        *last = terminal.to_string();
        let replies = vec![
            Reply::json(200, &response),
            stream(&events(&response)),
            stream(&without_output),
        ];
        let server = Server::start(replies).await;
        let unstreamed = complete(&config(&server)).await.unwrap();
        for _ in 0..2 {
            let streamed = complete(&config(&server)).await.unwrap();
            assert_eq!(
                (&unstreamed.usage, unstreamed.cost),
                (&streamed.usage, streamed.cost)
            );
            assert_eq!(
                unstreamed.response.to_stored(),
                streamed.response.to_stored()
            );
        }
    }
}

#[tokio::test]
async fn items_of_a_message_are_sent_back_unchanged() {
    let output = all_item_kinds();
    let mut server = Server::start(vec![stream(&events(&response(&output)))]).await;
    let message = complete(&config(&server)).await.unwrap().response.message;
    server.body().await;
    let input = input_after(&mut server, message, &["call_1", "call_2"]).await;
    let expected = [sent_back(&output), vec![result("call_1"), result("call_2")]].concat();
    assert_eq!(input, expected);
}

#[tokio::test]
async fn reasoning_is_not_sent_back_without_its_call() {
    let output = json!([
        reasoning_item("rs_1", "a"),
        call_item("call_1"),
        reasoning_item("rs_2", "b"),
        call_item("call_2"),
    ]);
    let mut server = Server::start(vec![stream(&events(&response(&output)))]).await;
    let message = complete(&config(&server)).await.unwrap().response.message;
    server.body().await;
    let input = input_after(&mut server, message, &["call_1"]).await;
    assert_eq!(
        input,
        [&sent_back(&output)[..2], &[result("call_1")]].concat()
    );
}

#[tokio::test]
async fn text_and_reasoning_are_reported_during_the_stream() {
    let server = Server::start(vec![stream(&events(&response(&all_item_kinds())))]).await;
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
        ("I look around.So.", "I should look first. ÜAnd then?")
    );
}

#[tokio::test]
async fn incomplete_response_has_its_text_and_reason() {
    let mut cut = response(&json!([text_item("Hel"), reasoning_item("rs_1", "hm")]));
    cut["status"] = "incomplete".into();
    cut["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let server = Server::start(vec![Reply::json(200, &cut), stream(&events(&cut))]).await;
    for _ in 0..2 {
        let response = complete(&config(&server)).await.unwrap().response;
        assert_eq!(
            (
                response.message.text.as_str(),
                response.finish_reason.as_str()
            ),
            ("Hel", "length")
        );
    }
}

#[tokio::test]
async fn refusal_of_the_model_is_its_text() {
    let refusal = json!({ "type": "refusal", "refusal": "I cannot help with that." });
    let output =
        json!([{ "type": "message", "id": "msg_1", "role": "assistant", "content": [refusal] }]);
    let server = Server::start(vec![stream(&events(&response(&output)))]).await;
    let (result, reports) = complete_with_progress(&config(&server)).await;
    let response = result.unwrap().response;
    assert_eq!(response.finish_reason, "content_filter");
    assert_eq!(response.message.text, "I cannot help with that.");
    assert_eq!(
        reports,
        [LlmProgress::Text("I cannot help with that.".into())]
    );
}

#[tokio::test]
async fn connection_closes_after_the_terminal_event() {
    let mut server = Server::start(vec![
        stream(&events(&response(&json!([text_item("Hello")])))).then_silence(),
    ])
    .await;
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
async fn images_of_the_user_are_sent() {
    let mut server = Server::start(vec![Reply::json(200, &response(&json!([])))]).await;
    let mut request = request();
    request.messages[1] = ChatMessage::User(vec![MessagePart::Image("https://h/cat.png".into())]);
    ProviderLlm::new(&config(&server))
        .unwrap()
        .complete(&request, &|_| ())
        .await
        .unwrap();
    let part = json!({ "type": "input_image", "image_url": "https://h/cat.png", "detail": "auto" });
    assert_eq!(server.body().await["input"][0]["content"], json!([part]));
}
