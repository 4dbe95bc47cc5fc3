//! `browser_output_masking`: replaces all but the latest web pages with their URLs.

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
            view.entries()
                .iter()
                .enumerate()
                .rev()
                .filter_map(|(index, entry)| match &entry.event.body {
                    EventBody::Observation(observation) => match &observation.kind {
                        ObservationKind::Browse(page) => Some((index, page.url.clone())),
                        _ => None,
                    },
                    _ => None,
                });
        let older: Vec<_> = pages.skip(self.attention_window).collect();
        for (index, url) in older {
            if let Some(entry) = view.entries_mut().get_mut(index) {
                entry.replacement =
                    Some(format!("[Page {url} omitted: newer pages follow.]").into());
            }
        }
        Ok(CondenserOutput::View(view))
    }
}
