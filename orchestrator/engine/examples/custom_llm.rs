//! Implements a model: it repeats the latest message of the user, at no cost.
//!
//! A real implementation calls its provider in `complete`, retries transient errors, and reports
//! progress while it streams.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use engine::llm::{
    AssistantMessage, ChatMessage, Completion, Llm, LlmError, LlmProgress, LlmRequest, MessagePart,
    ModelResponse,
};
use protocol::metrics::TokenUsage;

struct EchoLlm;

#[async_trait]
impl Llm for EchoLlm {
    fn model(&self) -> &str {
        "echo"
    }

    fn max_cost(&self, _: u64) -> f64 {
        0.0
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        let text = request
            .messages
            .iter()
            .rev()
            .find_map(|message| match message {
                ChatMessage::User(parts) => parts.iter().find_map(|part| match part {
                    MessagePart::Text(text) => Some(text.clone()),
                    MessagePart::Image(_) => None,
                }),
                _ => None,
            });
        let text = text.unwrap_or_default();
        on_progress(LlmProgress::Text(text.clone()));
        let message = AssistantMessage {
            text,
            ..AssistantMessage::default()
        };
        Ok(Completion {
            response: ModelResponse {
                message,
                ..ModelResponse::default()
            },
            usage: TokenUsage {
                model: self.model().to_owned(),
                ..TokenUsage::default()
            },
            cost: Some(0.0),
            latency: Duration::ZERO,
        })
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let message = ChatMessage::User(vec![MessagePart::Text("Hello".to_owned())]);
    let request = LlmRequest {
        messages: vec![message],
        tools: Vec::new(),
    };
    let completion = EchoLlm.complete(&request, &|_| {}).await?;
    if completion.response.message.text != "Hello" {
        return Err("the model did not repeat the message".into());
    }
    Ok(())
}
