//! The conversations that this process runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::conversation::{Afterwards, Conversation, Parts, State};
use engine::replay::Trajectory;
use engine::secrets::Redactor;
use protocol::ConversationId;
use tokio_util::task::AbortOnDropHandle;

use crate::claim::Claim;
use crate::error::ConversationsError;

/// A conversation that runs in this process.
pub(crate) struct RunningConversation {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) parts: Parts,
    pub(crate) redactor: Redactor,
    pub(crate) afterwards: Afterwards,
    pub(crate) replayed: Option<Trajectory>,
    pub(crate) claim: Claim,
    pub(crate) title_task: Option<AbortOnDropHandle<()>>,
}

/// How following a conversation ended, before it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// Nothing more happens by itself, or following failed.
    AtRest,
    /// The user does not wait for what is still performed.
    Interrupted,
}

/// A conversation that was closed.
pub struct ClosedConversation {
    /// Its last state.
    pub state: Arc<State>,
    /// Keeps it locked until this is dropped.
    pub claim: Claim,
}

/// The running conversations by id.
#[derive(Default)]
pub(crate) struct Registry {
    /// A mutex, because no method waits while it holds it.
    running: Mutex<BTreeMap<ConversationId, RunningConversation>>,
}

impl Registry {
    pub(crate) fn insert(&self, running: RunningConversation) {
        self.lock().insert(running.claim.id().clone(), running);
    }

    pub(crate) fn remove(&self, id: &ConversationId) -> Result<RunningConversation, ConversationsError> {
        self.lock().remove(id).ok_or_else(|| ConversationsError::NotRunning(id.clone()))
    }

    /// Uses a running conversation, without waiting.
    pub(crate) fn with<T>(
        &self,
        id: &ConversationId,
        use_it: impl FnOnce(&mut RunningConversation) -> T,
    ) -> Result<T, ConversationsError> {
        self.lock().get_mut(id).map(use_it).ok_or_else(|| ConversationsError::NotRunning(id.clone()))
    }

    /// The ids of all of them.
    pub(crate) fn ids(&self) -> Vec<ConversationId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConversationId, RunningConversation>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningConversation {
    /// Ends the conversation's task and its tool servers. Returns the last state before.
    pub(crate) async fn close(self, reason: CloseReason) -> (Claim, Result<Arc<State>, ConversationsError>) {
        drop(self.title_task);
        let state = self.conversation.state();
        // The servers in the sandbox too, while it is there.
        self.parts.shut_down_tool_servers().await;
        // A lease that cannot be reached now may hold work: only what ended in order is removed.
        let is_in_order = !state.is_underway() || reason == CloseReason::Interrupted;
        let afterwards = if is_in_order { self.afterwards } else { Afterwards::Keep };
        let closed = self.conversation.close(afterwards).await;
        (self.claim, closed.map(|()| state).map_err(Into::into))
    }
}
