//! `amortized`: forgets half of a history that is too long, without a summary.

use async_trait::async_trait;

use super::forgetting::{HistoryBounds, SummaryMode, condensation};
use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

pub(super) struct Amortized(pub(super) HistoryBounds);

#[async_trait]
impl Condenser for Amortized {
    async fn condense(
        &self,
        view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        Ok(match self.0.select_forgotten(&view, SummaryMode::None) {
            Some(forgotten) => condensation(&view, &forgotten, None, None),
            None => CondenserOutput::View(view),
        })
    }
}
