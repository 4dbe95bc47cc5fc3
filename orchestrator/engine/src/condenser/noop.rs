//! `noop`: keeps the whole history.

use async_trait::async_trait;

use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

/// Keeps the whole history.
#[derive(Debug, Clone, Copy)]
pub struct Noop;

#[async_trait]
impl Condenser for Noop {
    async fn condense(
        &self,
        view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        Ok(CondenserOutput::View(view))
    }
}
