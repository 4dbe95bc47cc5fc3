//! `pipeline`: runs several condensers, up to the first condensation.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

pub(super) struct Pipeline(pub(super) Vec<Arc<dyn Condenser>>);

#[async_trait]
impl Condenser for Pipeline {
    async fn condense(
        &self,
        mut view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        for condenser in &self.0 {
            match condenser.condense(view, on_progress).await? {
                CondenserOutput::View(reduced) => view = reduced,
                condensation @ CondenserOutput::Condensation(_) => return Ok(condensation),
            }
        }
        Ok(CondenserOutput::View(view))
    }

    fn max_cost(&self, view_tokens: u64) -> f64 {
        self.0
            .iter()
            .map(|condenser| condenser.max_cost(view_tokens))
            .fold(0.0, f64::max)
    }
}
