//! Condensers keep a history within the model's context window.
//!
//! Some only change the view. Others forget a part of the history, optionally in favor of a
//! summary. That decision is an event: later views start with the same events until the next
//! condensation, so that the provider's prompt cache stays valid. A condensation always reduces the
//! number of events. If nothing can be forgotten there is no condensation, and the agent's step
//! fails with the model's error.
//!
//! Events are forgotten in groups, such as a call with its result. The latest group is never
//! forgotten, because the agent still works on it.

mod amortized;
mod bounded_request;
mod browser_output_masking;
mod config;
mod conversation_window;
mod forgetting;
mod llm;
mod llm_attention;
mod noop;
mod observation_masking;
mod pipeline;
mod recent;
mod structured;
mod summarizing;
#[cfg(test)]
mod tests;

use async_trait::async_trait;

use crate::agent::AgentStep;
use crate::llm::{LlmError, LlmProgress};
use crate::view::View;

use conversation_window::forget_half;

pub use config::{CondenserConfig, CondenserConfigError};
pub use noop::Noop;

/// Reduces the view of an agent.
#[async_trait]
pub trait Condenser: Send + Sync {
    /// Reduces a view, or decides on a condensation. Dropping the future cancels it.
    ///
    /// # Errors
    /// A call of a model failed. An unusable response is no error, so that its cost is still
    /// recorded.
    async fn condense(
        &self,
        view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError>;

    /// Returns the maximum cost in US dollars, given the number of tokens of a request with the
    /// whole view. See [`Llm::max_cost`](crate::llm::Llm::max_cost). 0 if the condenser calls no
    /// model.
    fn max_cost(&self, _view_tokens: u64) -> f64 {
        0.0
    }
}

/// Condenses a view. Some condensers only mask or hide events. If one ignores a request, the older
/// half of the shown events is forgotten: a history that exceeds the context window would fail each
/// later step.
pub(crate) async fn condense(
    condenser: &dyn Condenser,
    view: View,
    on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
) -> Result<CondenserOutput, LlmError> {
    // A summary is for the model: shown to the user, it would look like an answer.
    let on_retry = |progress| {
        if let LlmProgress::Retrying { .. } = progress {
            on_progress(progress);
        }
    };
    match condenser.condense(view.clone(), &on_retry).await? {
        CondenserOutput::View(shown) if shown.is_condensation_requested() => {
            Ok(forget_half(&view, &shown).unwrap_or(CondenserOutput::View(shown)))
        }
        output => Ok(output),
    }
}

/// The result of a condenser.
#[derive(Debug)]
pub enum CondenserOutput {
    /// The view for the agent's step.
    View(View),
    /// A condensation, which replaces the agent's step.
    Condensation(Box<AgentStep>),
}
