//! `observation_masking`: masks observations before the latest events.
//!
//! The window moves in strides of half its length, like the one of `recent`. It is never shorter
//! than configured.

use std::sync::Arc;

use async_trait::async_trait;
use protocol::EventBody;

use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::{Retention, View};

/// Replaces a masked observation.
const MASK: &str = "[Output omitted: it is too old.]";

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
            let older = view.entries_mut().iter_mut().take(masked);
            older
                .filter(|entry| entry.retention == Retention::Forgettable)
                .filter(|entry| matches!(entry.event.body, EventBody::Observation(_)))
                .for_each(|entry| entry.replacement = Some(Arc::clone(&mask)));
        }
        Ok(CondenserOutput::View(view))
    }
}
