//! Estimates the tokens of a request, to detect that it exceeds the context window before it is
//! sent.
//!
//! The estimate is a fourth of the characters, corrected by the provider's count of the previous
//! request. That is more precise than another provider's tokenizer, and cheap: each request of a
//! conversation extends the previous one. Only requests that clearly exceed the context window are
//! rejected; the provider decides about the others.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::llm::{AssistantMessage, ChatMessage, LlmRequest, MessagePart, Tool};
use protocol::metrics::TokenUsage;

/// Tokens of an image: about a screenshot for most models.
const IMAGE_TOKENS: u64 = 1000;

/// Factor by which an estimate must exceed the context window, before and after the first count of
/// the provider.
const TOLERANCE: f64 = 1.25;
const TOLERANCE_WHEN_COUNTED: f64 = 1.05;

/// Plausible ratios of a count to its estimate. Other counts are ignored.
const PLAUSIBLE_RATIOS: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// Estimates the tokens of one model's requests.
#[derive(Debug, Default)]
pub(super) struct TokenEstimator {
    /// Ratio of the latest count to its estimate, as the bits of an `f64`. 0 before the first
    /// count.
    ratio: AtomicU64,
}

impl TokenEstimator {
    /// Returns the estimated tokens of a request that clearly exceeds `limit` tokens.
    pub(super) fn overflow(&self, request: &LlmRequest, limit: u64) -> Option<u64> {
        let (tokens, tolerance) = self.estimate_tokens(request);
        (tokens > limit as f64 * tolerance).then_some(tokens as u64)
    }

    /// Estimates the usage of a call whose provider does not count tokens.
    pub(super) fn estimate_usage(
        &self,
        request: &LlmRequest,
        message: &AssistantMessage,
    ) -> TokenUsage {
        TokenUsage {
            prompt_tokens: self.estimate_tokens(request).0 as u64,
            completion_tokens: message_tokens(message),
            ..TokenUsage::default()
        }
    }

    /// Returns the estimated tokens of a request, and the tolerance of the estimate.
    fn estimate_tokens(&self, request: &LlmRequest) -> (f64, f64) {
        let (ratio, tolerance) = match self.ratio.load(Ordering::Relaxed) {
            0 => (1.0, TOLERANCE),
            bits => (f64::from_bits(bits), TOLERANCE_WHEN_COUNTED),
        };
        (uncorrected_tokens(request) as f64 * ratio, tolerance)
    }

    /// Records the provider's count of a request.
    pub(super) fn record_count(&self, request: &LlmRequest, tokens: u64) {
        let ratio = tokens as f64 / uncorrected_tokens(request).max(1) as f64;
        if PLAUSIBLE_RATIOS.contains(&ratio) {
            self.ratio.store(ratio.to_bits(), Ordering::Relaxed);
        }
    }
}

fn uncorrected_tokens(request: &LlmRequest) -> u64 {
    let messages = request.messages.iter().map(|message| match message {
        ChatMessage::System(text) => text_tokens(text),
        ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => {
            parts.iter().map(part_tokens).sum()
        }
        ChatMessage::Assistant(message) => message_tokens(message),
    });
    messages.sum::<u64>() + request.tools.iter().map(tool_tokens).sum::<u64>()
}

fn part_tokens(part: &MessagePart) -> u64 {
    match part {
        MessagePart::Text(text) => text_tokens(text),
        MessagePart::Image(_) => IMAGE_TOKENS,
    }
}

/// The provider's other fields repeat the text, or are not sent.
fn message_tokens(message: &AssistantMessage) -> u64 {
    let arguments = message
        .tool_calls
        .iter()
        .map(|call| text_tokens(&call.arguments));
    text_tokens(&message.text) + arguments.sum::<u64>()
}

fn tool_tokens(tool: &Tool) -> u64 {
    text_tokens(&tool.description) + text_tokens(&tool.parameters.to_string())
}

/// About four ASCII characters are a token, and one letter of another script, which has two or
/// three bytes.
fn text_tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    (ascii / 4 + (text.len() - ascii) / 3) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(text: &str) -> LlmRequest {
        LlmRequest {
            messages: vec![ChatMessage::User(vec![MessagePart::Text(text.into())])],
            tools: vec![],
        }
    }

    #[test]
    fn request_overflows_only_when_it_clearly_exceeds_the_limit() {
        let estimator = TokenEstimator::default();
        let request = request(&"word".repeat(1000));
        assert_eq!(estimator.overflow(&request, 1000), None);
        assert_eq!(estimator.overflow(&request, 799), Some(1000));
    }

    #[test]
    fn count_of_the_provider_corrects_the_estimate() {
        let estimator = TokenEstimator::default();
        estimator.record_count(&request(&"word".repeat(1000)), 2000);
        let longer = request(&"word".repeat(1100));
        assert_eq!(estimator.overflow(&longer, 2100), None);
        assert_eq!(estimator.overflow(&longer, 2000), Some(2200));
        estimator.record_count(&longer, 0);
        estimator.record_count(&longer, u64::MAX);
        assert_eq!(estimator.overflow(&longer, 2000), Some(2200));
    }

    #[test]
    fn usage_is_estimated_when_the_provider_does_not_count() {
        let estimator = TokenEstimator::default();
        let message = AssistantMessage {
            text: "four four".into(),
            ..Default::default()
        };
        let guessed = |text: &str| {
            let TokenUsage {
                prompt_tokens,
                completion_tokens,
                ..
            } = estimator.estimate_usage(&request(text), &message);
            (prompt_tokens, completion_tokens)
        };
        assert_eq!(guessed(&"word".repeat(10)), (10, 2));
        estimator.record_count(&request(&"word".repeat(10)), 20);
        assert_eq!(guessed(&"word".repeat(11)), (22, 2));
    }

    #[test]
    fn estimate_includes_all_that_is_sent() {
        let message = json!({ "content": "four", "tool_calls": [{ "function": { "arguments": "\"eight\"!" } }], "kept": "x" });
        let request = LlmRequest {
            messages: vec![
                ChatMessage::System("four".into()),
                ChatMessage::User(vec![
                    MessagePart::Text("四".into()),
                    MessagePart::Image("data:".into()),
                ]),
                ChatMessage::Assistant(AssistantMessage::from_stored(message)),
            ],
            tools: vec![Tool {
                name: "t".into(),
                description: "four".into(),
                parameters: json!("tw"),
            }],
        };
        assert_eq!(
            uncorrected_tokens(&request),
            1 + 1 + IMAGE_TOKENS + 1 + 2 + 1 + 1
        );
    }
}
