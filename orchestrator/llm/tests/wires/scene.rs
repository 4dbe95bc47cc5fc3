//! A model of a test server, and a request.

use std::sync::Mutex;
use std::time::Duration;

use engine::llm::{
    ChatMessage, Completion, Llm as _, LlmError, LlmProgress, LlmRequest, MessagePart, Tool,
};
use llm::{LlmConfig, ProviderLlm, RetryPolicy};
use serde_json::{Value, json};

use crate::server::Server;

pub(crate) const KEY: &str = "sk-canary-1234567890";

/// Returns the configuration for `server`, without retries.
pub(crate) fn config(server: &Server) -> LlmConfig {
    LlmConfig {
        base_url: Some(server.url.clone()),
        api_key: Some(KEY.into()),
        retry: RetryPolicy {
            num_retries: 1,
            multiplier: 0.0,
            min_wait: Duration::ZERO,
            max_wait: Duration::ZERO,
        },
        ..LlmConfig::new("openai/gpt-4o")
    }
}

pub(crate) fn request() -> LlmRequest {
    LlmRequest {
        messages: vec![
            ChatMessage::System("be good".into()),
            ChatMessage::User(vec![MessagePart::Text("hi".into())]),
        ],
        tools: vec![Tool {
            name: "execute_bash".into(),
            description: "runs".into(),
            parameters: json!({ "type": "object", "properties": {} }),
        }],
    }
}

pub(crate) async fn complete(config: &LlmConfig) -> Result<Completion, LlmError> {
    ProviderLlm::new(config)
        .unwrap()
        .complete(&request(), &|_| ())
        .await
}

/// Returns the reported progress, too.
pub(crate) async fn complete_with_progress(
    config: &LlmConfig,
) -> (Result<Completion, LlmError>, Vec<LlmProgress>) {
    let reports = Mutex::new(Vec::new());
    let llm = ProviderLlm::new(config).unwrap();
    let result = llm
        .complete(&request(), &|report| reports.lock().unwrap().push(report))
        .await;
    (result, reports.into_inner().unwrap())
}

/// Returns a response as OpenAI sends it.
pub(crate) fn response_body(text: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1759489200, "model": "gpt-4o-2024-08-06",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": text, "tool_calls": null, "function_call": null },
        }],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
            "prompt_tokens_details": { "cached_tokens": 0 },
        },
    })
}
