//! `pipeline`: one condenser after another, up to the first that condenses.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Condensed, Condenser};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

pub(super) struct Pipeline(pub(super) Vec<Arc<dyn Condenser>>);

#[async_trait]
impl Condenser for Pipeline {
    async fn condense(
        &self,
        mut view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Condensed, LlmError> {
        for condenser in &self.0 {
            match condenser.condense(view, on_progress).await? {
                Condensed::View(shown) => view = shown,
                condensation @ Condensed::Condensation(_) => return Ok(condensation),
            }
        }
        Ok(Condensed::View(view))
    }

    fn most_cost(&self, view_tokens: u64) -> f64 {
        self.0.iter().map(|condenser| condenser.most_cost(view_tokens)).fold(0.0, f64::max)
    }
}
