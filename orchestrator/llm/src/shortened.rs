//! Results of tools told in part: V0's `max_message_chars`.
//!
//! Beginning and end are told, and how much is left out between them. What the user says, and what the model said, is told
//! whole.

use std::sync::Arc;

use async_trait::async_trait;
use engine::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest, Message, Part};

/// A model that is told at most so much of a result.
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

    fn most_cost(&self, request_tokens: u64) -> f64 {
        self.inner.most_cost(request_tokens)
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
        let Message::ToolResult { parts, .. } = message else { continue };
        for part in parts {
            if let Part::Text(text) = part
                && let Some(short) = shorten(text, most)
            {
                *text = short;
            }
        }
    }
    request
}

/// Nothing when all of it may be told.
fn shorten(text: &str, most: usize) -> Option<String> {
    let left_out = text.chars().count().checked_sub(most).filter(|left_out| *left_out > 0)?;
    let beginning: String = text.chars().take(most - most / 2).collect();
    let end: String = text.chars().skip(most - most / 2 + left_out).collect();
    Some(format!("{beginning}\n[{left_out} characters are left out here]\n{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_are_shortened_and_only_those_that_are_too_long() {
        let text = |text: &str| vec![Part::Text(text.into())];
        let result = |parts| Message::ToolResult { call_id: "c".into(), name: "run".into(), parts };
        let image = Part::Image("data:long".into());
        let request = LlmRequest {
            messages: vec![
                Message::System("a system".into()),
                Message::User(text("a user")),
                result(text("fünf!")),
                result(vec![Part::Text("schön & gut".into()), image.clone()]),
            ],
            tools: vec![],
        };
        let mut expected = request.clone();
        let short = Part::Text("sch\n[6 characters are left out here]\nut".into());
        expected.messages[3] = result(vec![short, image]);
        assert_eq!(shortened(request, 5), expected);
    }
}
