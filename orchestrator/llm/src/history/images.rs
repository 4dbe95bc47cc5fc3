//! Images that the provider refuses: damaged ones, formats that it does not know, addresses that it
//! cannot read. They are replaced from then on, because a refused image would fail each later
//! request.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use engine::llm::{ChatMessage, LlmRequest, MessagePart};

use super::{fingerprint, text_part};

/// Replaces a refused image.
pub(super) const REFUSED_IMAGE: &str = "[An image is left out: the provider refuses it.]";

/// Maximum number of refused images that are remembered.
const MAX_REFUSED: usize = 1 << 12;

/// Fingerprints of refused images. Never locked across an await.
#[derive(Debug, Default)]
pub(super) struct RefusedImages(Mutex<HashSet<String>>);

impl RefusedImages {
    /// Replaces the refused images of a message.
    pub(super) fn replace_in(&self, parts: &mut [MessagePart]) {
        let refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_empty() {
            return;
        }
        for part in parts {
            if matches!(part, MessagePart::Image(url) if refused.contains(&fingerprint(url))) {
                *part = text_part(REFUSED_IMAGE);
            }
        }
    }

    /// Records that an image of the request is refused: those since the latest message of the
    /// model, else all. Returns whether the next request differs.
    pub(super) fn learn(&self, request: &LlmRequest) -> bool {
        let is_response = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(_));
        let latest = request
            .messages
            .iter()
            .rposition(is_response)
            .map_or(0, |latest| latest + 1);
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut add = |messages: &[ChatMessage]| {
            let images: Vec<_> = messages
                .iter()
                .flat_map(images)
                .map(|url| fingerprint(url))
                .collect();
            if refused.len() + images.len() > MAX_REFUSED {
                refused.clear();
            }
            let before = refused.len();
            refused.extend(images.into_iter().take(MAX_REFUSED));
            refused.len() > before
        };
        let is_changed = add(&request.messages[latest..]) || add(&request.messages);
        if is_changed {
            tracing::warn!("the provider refuses an image; continuing without it");
        }
        is_changed
    }
}

fn images(message: &ChatMessage) -> impl Iterator<Item = &String> {
    let parts = match message {
        ChatMessage::User(parts) | ChatMessage::ToolResult { parts, .. } => parts.as_slice(),
        ChatMessage::System(_) | ChatMessage::Assistant(_) => &[],
    };
    parts.iter().filter_map(|part| match part {
        MessagePart::Image(url) => Some(url),
        MessagePart::Text(_) => None,
    })
}
