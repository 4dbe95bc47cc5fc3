//! Truncates long results of tools: V0's `max_message_chars`.
//!
//! The start and the end are sent, with V0's notice between them. All other messages are sent
//! unchanged.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use engine::llm::{ChatMessage, Completion, Llm, LlmError, LlmProgress, LlmRequest, MessagePart};
use engine::truncate::cut_middle;

/// A model whose tool results are truncated.
pub(crate) struct TruncatingLlm {
    pub(crate) inner: Arc<dyn Llm>,
    /// Maximum length of a text in a result, in characters.
    pub(crate) max_chars: usize,
}

#[async_trait]
impl Llm for TruncatingLlm {
    fn model(&self) -> &str {
        self.inner.model()
    }

    fn max_cost(&self, request_tokens: u64) -> f64 {
        self.inner.max_cost(request_tokens)
    }

    async fn complete(
        &self,
        request: &LlmRequest,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        self.inner
            .complete(
                &truncate_results(request.clone(), self.max_chars),
                on_progress,
            )
            .await
    }
}

fn truncate_results(mut request: LlmRequest, max_chars: usize) -> LlmRequest {
    for message in &mut request.messages {
        let ChatMessage::ToolResult { parts, .. } = message else {
            continue;
        };
        for part in parts {
            if let MessagePart::Text(text) = part
                && let Cow::Owned(truncated) = cut_middle(text, max_chars)
            {
                *text = truncated;
            }
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_results_are_truncated() {
        let text = |text: &str| vec![MessagePart::Text(text.into())];
        let result = |parts| ChatMessage::ToolResult {
            call_id: "c".into(),
            name: "run".into(),
            parts,
        };
        let image = MessagePart::Image("data:long".into());
        let request = LlmRequest {
            messages: vec![
                ChatMessage::System("a system".into()),
                ChatMessage::User(text("a user")),
                result(text("fünf!")),
                result(vec![MessagePart::Text("schön & gut".into()), image.clone()]),
            ],
            tools: vec![],
        };
        let mut expected = request.clone();
        let short =
            MessagePart::Text("sc\n[... Observation truncated due to length ...]\nut".into());
        expected.messages[3] = result(vec![short, image]);
        assert_eq!(truncate_results(request, 5), expected);
    }
}
