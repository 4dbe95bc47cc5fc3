//! `observation_masking`: of observations before the latest events, only that they were is shown.
//!
//! The window moves in strides of half its length, as the one of recent events does; it is never shorter than it is
//! said to be.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::EventBody;

use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::{Standing, View};

/// What is shown in their place.
const MASK: &str = "[What came of this is left out: it is too long ago.]";

pub(super) struct ObservationMasking {
    pub(super) attention_window: usize,
}

#[async_trait]
impl Condenser for ObservationMasking {
    async fn condense(
        &self,
        mut view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        let stride = (self.attention_window / 2).max(1);
        let masked = view.len().saturating_sub(self.attention_window) / stride * stride;
        if masked > 0 {
            let mask: Arc<str> = MASK.into();
            let older = view.shown_mut().iter_mut().take(masked);
            older
                .filter(|shown| shown.standing == Standing::Passing)
                .filter(|shown| matches!(shown.event.body, EventBody::Observation(_)))
                .for_each(|shown| shown.instead = Some(Arc::clone(&mask)));
        }
        Ok(CondenserOutput::View(view))
    }
}
