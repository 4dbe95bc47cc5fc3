//! `recent`: keeps only the first and the latest events.
//!
//! The window moves in strides of half its length, so that most steps hit the provider's prompt
//! cache. It is never longer than configured.

use async_trait::async_trait;

use super::forgetting::is_between;
use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

pub(super) struct Recent {
    pub(super) keep_first: usize,
    pub(super) max_events: usize,
}

#[async_trait]
impl Condenser for Recent {
    async fn condense(
        &self,
        mut view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let stride = (self.max_events / 2).max(1);
        let strides = view.len().saturating_sub(self.max_events).div_ceil(stride);
        if strides > 0 {
            let keep_last = view
                .len()
                .saturating_sub(self.keep_first)
                .saturating_sub(strides * stride);
            let is_hidden = is_between(&view, self.keep_first, keep_last);
            view.remove(is_hidden);
        }
        Ok(CondenserOutput::View(view))
    }
}
