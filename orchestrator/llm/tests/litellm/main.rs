//! All wires with the LiteLLM proxy: responses, usage, costs and errors.
//!
//! The proxy's models are its own mocks, so no request leaves this machine.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../../../../tests/pypi.rs"]
mod pypi;
#[path = "../../../../tests/skip.rs"]
mod skip;

mod proxy;

use engine::llm::{ChatMessage, Completion, LlmError, LlmErrorKind, LlmRequest, MessagePart};
use llm::{LlmConfig, RetryPolicy, connect};
use proxy::{KEY, Proxy};
use serde_json::json;

async fn complete(proxy: &Proxy, model: &str, is_streamed: bool) -> Result<Completion, LlmError> {
    let mut config = LlmConfig {
        base_url: Some(proxy.address.clone()),
        api_key: Some(KEY.into()),
        retry: RetryPolicy { num_retries: 1, ..RetryPolicy::default() },
        ..LlmConfig::new(model)
    };
    if !is_streamed {
        config.completion_kwargs.insert("stream".into(), json!(false));
    }
    let messages = vec![
        ChatMessage::System("Be good.".into()),
        ChatMessage::User(vec![MessagePart::Text("Hello?".into())]),
    ];
    connect(&config).unwrap().complete(&LlmRequest { messages, tools: vec![] }, &|_| ()).await
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
        assert_eq!(completion.response.message.text, "Hello from the proxy.", "{model} {is_streamed}");
        let usage = &completion.usage;
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), tokens, "{model} {is_streamed}");
        let millionths = completion.cost.map(|dollars| (dollars * 1e6).round());
        assert_eq!(millionths, cost.map(f64::from), "{model} {is_streamed}");
    }
    for wire in ["openai", "anthropic"] {
        for (name, kind) in [
            ("limited", LlmErrorKind::RateLimited),
            ("overflowing", LlmErrorKind::ContextWindowExceeded),
            ("failing", LlmErrorKind::Unavailable),
            ("missing", LlmErrorKind::UnknownModel),
        ] {
            let error = complete(&proxy, &format!("{wire}/{name}"), true).await.unwrap_err();
            assert_eq!(error.kind, kind, "{wire}/{name}: {error}");
        }
    }
}
