//! `conversation_window`: when a condensation is asked for, the older half of the history is forgotten, but for what
//! everything begins with.

use async_trait::async_trait;
use protocol::{Action, EventBody};

use super::forgetting::{between, forget};
use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::{Standing, View};

pub(super) struct ConversationWindow;

#[async_trait]
impl Condenser for ConversationWindow {
    async fn condense(
        &self,
        view: View,
        _on_progress: &(dyn Fn(LlmProgress) + Send + Sync),
    ) -> Result<CondenserOutput, LlmError> {
        if !view.is_condensation_requested() {
            return Ok(CondenserOutput::View(view));
        }
        // What the agent was told of its workspace belongs to the task.
        let recall = view
            .shown()
            .iter()
            .find(|shown| matches!(shown.event.body, EventBody::Action(Action::Recall(_))));
        let recalled = recall.map(|shown| shown.group);
        let is_passing = |standing, group| standing == Standing::Passing && Some(group) != recalled;
        let passing = view.shown().iter().filter(|shown| is_passing(shown.standing, shown.group)).count();
        let mut forgotten = between(&view, 0, (passing / 2).max(1));
        forgotten.retain(|shown| Some(shown.group) != recalled);
        Ok(if forgotten.is_empty() {
            CondenserOutput::View(view)
        } else {
            forget(&view, &forgotten, None, None)
        })
    }
}
