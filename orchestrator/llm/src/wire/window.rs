//! Whether a request fits the model's window, before it is sent.
//!
//! The count is an estimate: a fourth of the characters, corrected by how many tokens the provider counted in the request
//! before. That is nearer than a tokenizer of another provider's, needs no tables and no time, and follows a conversation,
//! of which each request is the one before and a little more. Near the edge the provider is the judge: only what clearly
//! does not fit is not sent.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::llm::{AssistantMessage, ChatMessage, LlmRequest, MessagePart, Tool};
use protocol::metrics::TokenUsage;

/// What an image counts, in tokens: about a screen's worth for most models.
const IMAGE_TOKENS: u64 = 1000;

/// How far over the window an estimate must be: before the provider counted anything, and after.
const DOUBT: f64 = 1.25;
const DOUBT_WHEN_COUNTED: f64 = 1.05;

/// A count that is further from the estimate is no count.
const RATIOS: std::ops::RangeInclusive<f64> = 0.1..=10.0;

/// Estimates requests of one model.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Tokens counted for each that was estimated, as the bits of an `f64`; 0 before the first count.
    ratio: AtomicU64,
}

impl Window {
    /// The estimated tokens of a request that does not fit into `room` tokens.
    pub(super) fn overflow(&self, request: &LlmRequest, room: u64) -> Option<u64> {
        let (tokens, doubt) = self.corrected(request);
        (tokens > room as f64 * doubt).then_some(tokens as u64)
    }

    /// What a call used whose provider does not count.
    pub(super) fn guess(&self, request: &LlmRequest, message: &AssistantMessage) -> TokenUsage {
        TokenUsage {
            prompt_tokens: self.corrected(request).0 as u64,
            completion_tokens: message_tokens(message),
            ..TokenUsage::default()
        }
    }

    /// The estimated tokens of a request, and how far over the truth they may be.
    fn corrected(&self, request: &LlmRequest) -> (f64, f64) {
        let (ratio, doubt) = match self.ratio.load(Ordering::Relaxed) {
            0 => (1.0, DOUBT),
            bits => (f64::from_bits(bits), DOUBT_WHEN_COUNTED),
        };
        (estimate(request) as f64 * ratio, doubt)
    }

    /// Notes what the provider counted.
    pub(super) fn counted(&self, request: &LlmRequest, tokens: u64) {
        let ratio = tokens as f64 / estimate(request).max(1) as f64;
        if RATIOS.contains(&ratio) {
            self.ratio.store(ratio.to_bits(), Ordering::Relaxed);
        }
    }
}

fn estimate(request: &LlmRequest) -> u64 {
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

/// What else is kept of an answer is the same again, or not sent.
fn message_tokens(message: &AssistantMessage) -> u64 {
    let arguments = message.tool_calls.iter().map(|call| text_tokens(&call.arguments));
    text_tokens(&message.text) + arguments.sum::<u64>()
}

fn tool_tokens(tool: &Tool) -> u64 {
    text_tokens(&tool.description) + text_tokens(&tool.parameters.to_string())
}

/// Letters of other scripts are about a token each; they are the bytes beside ASCII, two or three a letter.
fn text_tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    (ascii / 4 + (text.len() - ascii) / 3) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(text: &str) -> LlmRequest {
        LlmRequest { messages: vec![ChatMessage::User(vec![MessagePart::Text(text.into())])], tools: vec![] }
    }

    #[test]
    fn only_what_clearly_does_not_fit_overflows() {
        let window = Window::default();
        let request = request(&"word".repeat(1000));
        assert_eq!(window.overflow(&request, 1000), None);
        assert_eq!(window.overflow(&request, 799), Some(1000));
    }

    #[test]
    fn the_providers_count_corrects_the_estimate() {
        let window = Window::default();
        window.counted(&request(&"word".repeat(1000)), 2000);
        let longer = request(&"word".repeat(1100));
        assert_eq!(window.overflow(&longer, 2100), None);
        assert_eq!(window.overflow(&longer, 2000), Some(2200));
        window.counted(&longer, 0);
        window.counted(&longer, u64::MAX);
        assert_eq!(window.overflow(&longer, 2000), Some(2200));
    }

    #[test]
    fn what_a_provider_does_not_count_is_guessed() {
        let window = Window::default();
        let message = AssistantMessage { text: "four four".into(), ..Default::default() };
        let guessed = |text: &str| {
            let TokenUsage { prompt_tokens, completion_tokens, .. } = window.guess(&request(text), &message);
            (prompt_tokens, completion_tokens)
        };
        assert_eq!(guessed(&"word".repeat(10)), (10, 2));
        window.counted(&request(&"word".repeat(10)), 20);
        assert_eq!(guessed(&"word".repeat(11)), (22, 2));
    }

    #[test]
    fn everything_that_is_sent_is_estimated() {
        let said = json!({ "content": "four", "tool_calls": [{ "function": { "arguments": "\"eight\"!" } }], "kept": "x" });
        let request = LlmRequest {
            messages: vec![
                ChatMessage::System("four".into()),
                ChatMessage::User(vec![MessagePart::Text("四".into()), MessagePart::Image("data:".into())]),
                ChatMessage::Assistant(AssistantMessage::from_stored(said)),
            ],
            tools: vec![Tool { name: "t".into(), description: "four".into(), parameters: json!("tw") }],
        };
        assert_eq!(estimate(&request), 1 + 1 + IMAGE_TOKENS + 1 + 2 + 1 + 1);
    }
}
