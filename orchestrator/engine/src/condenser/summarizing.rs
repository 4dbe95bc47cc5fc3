//! What the condensers share whose model writes a summary: the new one is made of the one before and of what is
//! forgotten now.

use std::sync::Arc;

use async_trait::async_trait;

use super::asking::{ask, max_cost, shorten};
use super::forgetting::{Bounds, Summary, forget};
use super::{Condenser, CondenserOutput};
use crate::agent::ModelCall;
use crate::llm::{ChatMessage, Llm, LlmError, LlmProgress, LlmRequest, MessagePart, ModelResponse, Tool};
use crate::view::{Standing, View};

/// The longest summary, in characters. Of one that is longer beginning and end are kept.
const LONGEST_SUMMARY: usize = 20_000;

pub(super) struct Summarizing {
    pub(super) llm: Arc<dyn Llm>,
    pub(super) bounds: Bounds,
    /// How much of an event the model is told, in characters.
    pub(super) max_event_length: usize,
    pub(super) form: Form,
}

/// How a summary is asked for, and what the answer says.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) instructions: &'static str,
    pub(super) tools: fn() -> Vec<Tool>,
    pub(super) read: fn(&ModelResponse) -> String,
}

#[async_trait]
impl Condenser for Summarizing {
    async fn condense(
        &self,
        view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let Some(forgotten) = self.bounds.due(&view, Summary::Written) else {
            return Ok(CondenserOutput::View(view));
        };
        let before = view.shown().iter().find(|shown| shown.standing == Standing::Summary);
        let before = before.map(|shown| shown.text()).unwrap_or_default();
        let request = |events: &str| self.request(&before, events);
        let completion =
            ask(self.llm.as_ref(), &forgotten, self.max_event_length, &request, on_progress).await?;
        let summary = match (self.form.read)(&completion.response) {
            // It is paid for, and the history has to become shorter all the same.
            text if text.trim().is_empty() => {
                format!(
                    "{before}\n\n{} events that followed are forgotten without a summary.",
                    forgotten.len()
                )
            }
            text => text,
        };
        let summary = shorten(summary.trim(), LONGEST_SUMMARY);
        Ok(forget(&view, &forgotten, Some(summary), Some(ModelCall::from(&completion))))
    }

    fn max_cost(&self, view_tokens: u64) -> f64 {
        max_cost(self.llm.as_ref(), view_tokens)
    }
}

impl Summarizing {
    fn request(&self, before: &str, events: &str) -> LlmRequest {
        let before = if before.is_empty() { "There is none yet." } else { before };
        let told = format!(
            "<summary_so_far>\n{before}\n</summary_so_far>\n\n<events>\n{events}\n</events>\n\n\
             Write the new summary now."
        );
        let messages = vec![
            ChatMessage::System(self.form.instructions.to_owned()),
            ChatMessage::User(vec![MessagePart::Text(told)]),
        ];
        LlmRequest { messages, tools: (self.form.tools)() }
    }
}
