//! Results of tools sent in part: V0's `max_message_chars`.
//!
//! Start and end are sent, and V0's notice between them. What the user says, and what the model said, is sent whole.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use engine::llm::{ChatMessage, Completion, Llm, LlmError, LlmProgress, LlmRequest, MessagePart};
use engine::truncate::cut_middle;

/// A model that is sent at most so much of a result.
pub(crate) struct ShortenedLlm {
    pub(crate) inner: Arc<dyn Llm>,
    /// In characters.
    pub(crate) most: usize,
}

#[async_trait]
impl Llm for ShortenedLlm {
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
        self.inner.complete(&shortened(request.clone(), self.most), on_progress).await
    }
}

fn shortened(mut request: LlmRequest, most: usize) -> LlmRequest {
    for message in &mut request.messages {
        let ChatMessage::ToolResult { parts, .. } = message else { continue };
        for part in parts {
            if let MessagePart::Text(text) = part
                && let Cow::Owned(shorter) = cut_middle(text, most)
            {
                *text = shorter;
            }
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_are_shortened_and_only_those_that_are_too_long() {
        let text = |text: &str| vec![MessagePart::Text(text.into())];
        let result = |parts| ChatMessage::ToolResult { call_id: "c".into(), name: "run".into(), parts };
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
        let short = MessagePart::Text("sc\n[... Observation truncated due to length ...]\nut".into());
        expected.messages[3] = result(vec![short, image]);
        assert_eq!(shortened(request, 5), expected);
    }
}
