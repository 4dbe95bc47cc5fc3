//! All wires with the LiteLLM proxy: responses, usage, costs and errors.
//!
//! The proxy's models are its own mocks, so no request leaves this machine.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../../tests/pypi.rs"]
mod pypi;
#[path = "../../../../tests/skip.rs"]
mod skip;

mod proxy;

use engine::llm::{ChatMessage, Completion, LlmError, LlmErrorKind, LlmRequest, MessagePart, Tool};
use llm::{LlmConfig, RetryPolicy, connect};
use proxy::{KEY, Proxy};
use serde_json::{Value, json};

async fn complete(proxy: &Proxy, model: &str, is_streamed: bool) -> Result<Completion, LlmError> {
    complete_history(proxy, model, is_streamed, start()).await
}

fn start() -> Vec<ChatMessage> {
    vec![
        ChatMessage::System("Be good.".into()),
        ChatMessage::User(vec![MessagePart::Text("Hello?".into())]),
    ]
}

async fn complete_history(
    proxy: &Proxy,
    model: &str,
    is_streamed: bool,
    messages: Vec<ChatMessage>,
) -> Result<Completion, LlmError> {
    let mut config = LlmConfig {
        base_url: Some(proxy.address.clone()),
        api_key: Some(KEY.into()),
        retry: RetryPolicy {
            num_retries: 1,
            ..RetryPolicy::default()
        },
        ..LlmConfig::new(model)
    };
    if !is_streamed {
        config
            .completion_kwargs
            .insert("stream".into(), json!(false));
    }
    let parameters = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    let tools = vec![Tool {
        name: "run".into(),
        description: "Runs it.".into(),
        parameters,
    }];
    connect(&config)
        .unwrap()
        .complete(&LlmRequest { messages, tools }, &|_| ())
        .await
}

/// Gets a call, and sends its result back.
async fn assert_result_of_a_call_is_sent(proxy: &Proxy, wire: &str, is_streamed: bool) {
    let mut messages = start();
    // The proxy's mocks make calls only with chat completions, and not in streams.
    let called = complete(proxy, "openai/calling", false).await.unwrap();
    let message = called.response.message;
    let [call] = &message.tool_calls[..] else {
        panic!("{wire} {is_streamed}: {message:?}")
    };
    assert_eq!(call.name, "run", "{wire}");
    assert_eq!(
        serde_json::from_str::<Value>(&call.arguments).unwrap(),
        json!({ "command": "ls" })
    );
    let (call_id, name) = (call.id.clone(), call.name.clone());
    let parts = vec![MessagePart::Text("a file".into())];
    messages.extend([
        ChatMessage::Assistant(message),
        ChatMessage::ToolResult {
            call_id,
            name,
            parts,
        },
    ]);
    let answered = complete_history(proxy, &format!("{wire}/answering"), is_streamed, messages)
        .await
        .unwrap();
    assert_eq!(
        answered.response.message.text, "Hello from the proxy.",
        "{wire} {is_streamed}"
    );
}

/// One test, because the proxy starts slowly.
#[tokio::test]
async fn proxy_works_on_both_wires_and_its_errors_are_classified() {
    let Some(proxy) = Proxy::start() else { return };
    // Without streaming the mock reports its own counts. With streaming LiteLLM counts the tokens.
    for (model, is_streamed, tokens, cost) in [
        ("openai/answering", true, (16, 5), Some(90)),
        ("openai/answering", false, (10, 20), Some(225)),
        // The proxy neither streams its mocks with the Responses API, nor makes errors of them.
        ("openai/responses/answering", false, (36, 87), Some(768)),
        ("anthropic/answering", true, (2095, 503), None),
        ("anthropic/answering", false, (2095, 503), None),
    ] {
        let completion = complete(&proxy, model, is_streamed).await.unwrap();
        assert_eq!(
            completion.response.message.text, "Hello from the proxy.",
            "{model} {is_streamed}"
        );
        let usage = &completion.usage;
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            tokens,
            "{model} {is_streamed}"
        );
        let millionths = completion.cost.map(|dollars| (dollars * 1e6).round());
        assert_eq!(millionths, cost.map(f64::from), "{model} {is_streamed}");
    }
    for (wire, is_streamed) in [
        ("openai", true),
        ("openai", false),
        ("anthropic", true),
        ("anthropic", false),
        ("openai/responses", false),
    ] {
        assert_result_of_a_call_is_sent(&proxy, wire, is_streamed).await;
    }
    for wire in ["openai", "anthropic"] {
        for (name, kind) in [
            ("limited", LlmErrorKind::RateLimited),
            ("overflowing", LlmErrorKind::ContextWindowExceeded),
            ("failing", LlmErrorKind::Unavailable),
            ("missing", LlmErrorKind::UnknownModel),
        ] {
            let error = complete(&proxy, &format!("{wire}/{name}"), true)
                .await
                .unwrap_err();
            assert_eq!(error.kind, kind, "{wire}/{name}: {error}");
        }
    }
}
