use async_trait::async_trait;
use tokio::sync::Notify;

use crate::llm::{Completion, Llm, LlmError, LlmProgress, LlmRequest};

/// A model that never responds.
#[derive(Debug, Default)]
pub struct HangingLlm {
    /// Maximum cost of a call, in US dollars.
    pub max_cost: f64,
    /// Notified by each call.
    pub called: Notify,
}

#[async_trait]
impl Llm for HangingLlm {
    fn model(&self) -> &str {
        "hanging"
    }

    fn max_cost(&self, _: u64) -> f64 {
        self.max_cost
    }

    async fn complete(
        &self,
        _: &LlmRequest,
        _: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<Completion, LlmError> {
        self.called.notify_one();
        std::future::pending().await
    }
}
