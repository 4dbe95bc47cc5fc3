//! `browser_output_masking`: of pages before the latest ones, only the address is shown.

use async_trait::async_trait;
use protocol::{EventBody, ObservationKind};

use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

pub(super) struct BrowserOutputMasking {
    pub(super) attention_window: usize,
}

#[async_trait]
impl Condenser for BrowserOutputMasking {
    async fn condense(
        &self,
        mut view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let pages =
            view.shown().iter().enumerate().rev().filter_map(|(index, shown)| match &shown.event.body {
                EventBody::Observation(observation) => match &observation.kind {
                    ObservationKind::Browse(page) => Some((index, page.url.clone())),
                    _ => None,
                },
                _ => None,
            });
        let older: Vec<_> = pages.skip(self.attention_window).collect();
        for (index, url) in older {
            if let Some(shown) = view.shown_mut().get_mut(index) {
                shown.instead = Some(format!("[The page {url} is left out: newer ones follow.]").into());
            }
        }
        Ok(CondenserOutput::View(view))
    }
}
