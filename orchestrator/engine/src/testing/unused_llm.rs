use async_trait::async_trait;

use crate::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};

/// A model that costs nothing and panics when it is called, for tests in which no model may be
/// called.
#[derive(Debug, Clone, Copy)]
pub struct UnusedLlm;

#[async_trait]
impl Llm for UnusedLlm {
    fn model(&self) -> &str {
        "unused"
    }

    fn max_cost(&self, _: u64) -> f64 {
        0.0
    }

    #[expect(clippy::panic, reason = "a test fails by it")]
    async fn complete(
        &self,
        _: &LlmRequest,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        panic!("the model is called")
    }
}
