//! Shared by the condensers that write a summary: it is based on the previous summary and the
//! events to forget.

use std::sync::Arc;

use async_trait::async_trait;

use super::bounded_request::{complete_about, max_cost, shorten};
use super::forgetting::{HistoryBounds, SummaryMode, condensation};
use super::{Condenser, CondenserOutput};
use crate::agent::ModelCall;
use crate::llm::{
    AssistantMessage, ChatMessage, Llm, LlmError, LlmProgress, LlmRequest, MessagePart, Tool,
};
use crate::view::{View, ViewEntry};

/// Maximum length of a summary, in characters. The middle of a longer one is removed.
const MAX_SUMMARY_CHARS: usize = 20_000;

pub(super) struct Summarizing {
    pub(super) llm: Arc<dyn Llm>,
    pub(super) bounds: HistoryBounds,
    /// Maximum length of an event in the request, in characters.
    pub(super) max_event_length: usize,
    pub(super) form: SummaryForm,
}

/// How to request a summary, and how to read it from the response.
#[derive(Clone, Copy)]
pub(super) struct SummaryForm {
    pub(super) instructions: &'static str,
    pub(super) tools: fn() -> Vec<Tool>,
    pub(super) read: fn(&AssistantMessage) -> String,
}

#[async_trait]
impl Condenser for Summarizing {
    async fn condense(
        &self,
        view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let Some(forgotten) = self.bounds.select_forgotten(&view, SummaryMode::Written) else {
            return Ok(CondenserOutput::View(view));
        };
        let previous = view.summary().map(ViewEntry::text).unwrap_or_default();
        let request = |events: &str| self.request(&previous, events);
        let completion = complete_about(
            self.llm.as_ref(),
            &forgotten,
            self.max_event_length,
            &request,
            on_progress,
        )
        .await?;
        let summary = match (self.form.read)(&completion.response.message) {
            // Condenses anyway: the call has its cost, and the history is too long.
            text if text.trim().is_empty() => {
                format!(
                    "{previous}\n\nThe next {} events were forgotten without a summary.",
                    forgotten.len()
                )
            }
            text => text,
        };
        let summary = shorten(summary.trim(), MAX_SUMMARY_CHARS);
        Ok(condensation(
            &view,
            &forgotten,
            Some(summary),
            Some(ModelCall::from(&completion)),
        ))
    }

    fn max_cost(&self, view_tokens: u64) -> f64 {
        max_cost(self.llm.as_ref(), view_tokens)
    }
}

impl Summarizing {
    fn request(&self, previous: &str, events: &str) -> LlmRequest {
        let previous = if previous.is_empty() {
            "There is none yet."
        } else {
            previous
        };
        let prompt = format!(
            "<summary_so_far>\n{previous}\n</summary_so_far>\n\n<events>\n{events}\n</events>\n\n\
             Write the new summary now."
        );
        let messages = vec![
            ChatMessage::System(self.form.instructions.to_owned()),
            ChatMessage::User(vec![MessagePart::Text(prompt)]),
        ];
        LlmRequest {
            messages,
            tools: (self.form.tools)(),
        }
    }
}
