//! Condensers: how a history stays short enough for a model.
//!
//! Some show less of it and leave the log as it is; others decide that a part of it is forgotten, perhaps for a
//! summary, and that decision is an event: the view of every later step is the same until the next one, so that what a
//! provider has cached of it stays good. A condensation always leaves fewer events than there were. Where nothing can
//! be forgotten there is none, and a history that does not fit ends in the model's own error, at the agent's step.
//!
//! An event is forgotten together with everything that it must be shown with, and the latest of these groups never is:
//! the agent is not done with it.

mod amortized;
mod asking;
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

pub use config::{CondenserConfig, CondenserConfigError};
pub use noop::Noop;

/// Decides what of a view the agent is shown.
#[async_trait]
pub trait Condenser: Send + Sync {
    /// Looks at the view that the agent would be shown. Dropping the future abandons it.
    ///
    /// # Errors
    /// The model's, when one was asked and failed. Whatever was paid for is in what is returned: an answer that cannot
    /// be used is no error.
    async fn condense(
        &self,
        view: View,
        on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError>;

    /// What that can cost at most when a request that tells the whole view has so many tokens, in US dollars, as
    /// [`Llm::max_cost`](crate::llm::Llm::max_cost). Nothing where no model is asked.
    fn max_cost(&self, _view_tokens: u64) -> f64 {
        0.0
    }
}

/// What becomes of a view.
#[derive(Debug)]
pub enum CondenserOutput {
    /// The agent takes its step on this.
    View(View),
    /// The step is a condensation, with what it took; the agent takes the next.
    Condensation(Box<AgentStep>),
}
