//! `conversation_window`: forgets the older half of the history if a condensation is requested, except the prompt, the
//! task and the facts about the workspace.

use async_trait::async_trait;
use protocol::{Action, EventBody};

use super::forgetting::{between, condensation};
use super::{Condenser, CondenserOutput};
use crate::llm::{LlmError, LlmProgress};
use crate::view::{Retention, View, ViewEntry};

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
        // The facts about the workspace belong to the task.
        let recall = view
            .entries()
            .iter()
            .find(|entry| matches!(entry.event.body, EventBody::Action(Action::Recall(_))));
        let recall_group = recall.map(|entry| entry.group);
        let is_forgettable = |entry: &&ViewEntry| {
            entry.retention == Retention::Forgettable && Some(entry.group) != recall_group
        };
        let count = view.entries().iter().filter(is_forgettable).count();
        let mut forgotten = between(&view, 0, (count / 2).max(1));
        forgotten.retain(|entry| Some(entry.group) != recall_group);
        Ok(if forgotten.is_empty() {
            CondenserOutput::View(view)
        } else {
            condensation(&view, &forgotten, None, None)
        })
    }
}
