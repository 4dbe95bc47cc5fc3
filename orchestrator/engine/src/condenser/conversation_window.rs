//! `conversation_window`: forgets the older half of the history if a condensation is requested,
//! except the prompt, the task and the facts about the workspace.

use std::collections::HashSet;

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
        let condensation = forget_half(&view, &view);
        Ok(condensation.unwrap_or(CondenserOutput::View(view)))
    }
}

/// Forgets the older half of the shown events, and all hidden events. `None` if there is nothing to
/// forget.
pub(super) fn forget_half(view: &View, shown: &View) -> Option<CondenserOutput> {
    // The facts about the workspace belong to the task.
    let recall = shown
        .entries()
        .iter()
        .find(|entry| matches!(entry.event.body, EventBody::Action(Action::Recall(_))));
    let recall_group = recall.map(|entry| entry.group);
    let is_forgettable = |entry: &&ViewEntry| {
        entry.retention == Retention::Forgettable && Some(entry.group) != recall_group
    };
    let count = shown.entries().iter().filter(is_forgettable).count();
    let ids = |entries: Vec<&ViewEntry>| {
        entries
            .into_iter()
            .map(|entry| entry.event.id)
            .collect::<HashSet<_>>()
    };
    let (older, shown) = (
        ids(between(shown, 0, (count / 2).max(1))),
        ids(shown.entries().iter().collect()),
    );
    let is_forgotten = |entry: &&ViewEntry| {
        let id = &entry.event.id;
        is_forgettable(entry) && (older.contains(id) || !shown.contains(id))
    };
    let forgotten: Vec<_> = view.entries().iter().filter(is_forgotten).collect();
    (!forgotten.is_empty()).then(|| condensation(view, &forgotten, None, None))
}
