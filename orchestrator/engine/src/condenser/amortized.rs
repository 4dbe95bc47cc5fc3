//! `amortized`: when the history has grown too long, half of it is forgotten, unsaid.

use async_trait::async_trait;

use super::forgetting::{Bounds, Summary, forget};
use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

pub(super) struct Amortized(pub(super) Bounds);

#[async_trait]
impl Condenser for Amortized {
    async fn condense(
        &self,
        view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        Ok(match self.0.due(&view, Summary::None) {
            Some(forgotten) => forget(&view, &forgotten, None, None),
            None => CondenserOutput::View(view),
        })
    }
}
