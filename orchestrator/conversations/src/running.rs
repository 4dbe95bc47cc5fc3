//! Conversations that run in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::conversation::{Conversation, EngineParts, SandboxDisposition, State};
use engine::secrets::Redactor;
use futures_util::future::join_all;
use protocol::{ConversationId, UserId};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::claim::Claim;
use crate::error::ConversationsError;
use crate::follow::is_idle;

/// A conversation that runs in this process.
pub(crate) struct RunningConversation {
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) parts: EngineParts,
    pub(crate) redactor: Redactor,
    pub(crate) disposition: SandboxDisposition,
    pub(crate) claim: Claim,
    pub(crate) title_task: Option<AbortOnDropHandle<()>>,
    /// When the conversation was opened, or the user last sent something.
    pub(crate) last_input: Instant,
}

/// Why a conversation is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It is idle, or following it failed.
    Idle,
    /// The process ends. The sandbox is kept, so that the conversation can be resumed where it is.
    Shutdown,
    /// The user interrupted it, and does not wait for actions in flight.
    Interrupted,
}

/// A conversation that was closed.
pub struct ClosedConversation {
    /// Last state of the conversation.
    pub state: Arc<State>,
    /// Keeps the conversation locked until it is dropped.
    pub claim: Claim,
}

/// Running conversations by id.
#[derive(Default)]
pub(crate) struct RunningConversations {
    /// A blocking mutex, because it is never held across an await.
    by_id: Mutex<BTreeMap<ConversationId, RunningConversation>>,
    changed: watch::Sender<()>,
}

impl RunningConversations {
    pub(crate) fn insert(&self, running: RunningConversation) {
        self.lock().insert(running.claim.id().clone(), running);
        self.notify();
    }

    pub(crate) fn remove(
        &self,
        id: &ConversationId,
    ) -> Result<RunningConversation, ConversationsError> {
        let removed = self.lock().remove(id);
        self.notify();
        removed.ok_or_else(|| ConversationsError::NotRunning(id.clone()))
    }

    /// Wakes the receivers of [`watch`](Self::watch), because a conversation that does not run has
    /// changed.
    pub(crate) fn notify(&self) {
        self.changed.send_replace(());
    }

    /// Returns a receiver that changes whenever a conversation is added or removed, and on request.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the conversation with the oldest input of the user, of those of one owner or of all
    /// that are idle.
    pub(crate) fn longest_idle(&self, owner: Option<&UserId>) -> Option<ConversationId> {
        let by_id = self.lock();
        let is_owned =
            |running: &RunningConversation| owner.is_none_or(|owner| running.has_owner(owner));
        let idle = by_id
            .iter()
            .filter(|(_, running)| running.is_idle() && is_owned(running));
        idle.min_by_key(|(_, running)| running.last_input)
            .map(|(id, _)| id.clone())
    }

    /// Calls a function with a running conversation.
    pub(crate) fn with<T>(
        &self,
        id: &ConversationId,
        call: impl FnOnce(&mut RunningConversation) -> T,
    ) -> Result<T, ConversationsError> {
        self.lock()
            .get_mut(id)
            .map(call)
            .ok_or_else(|| ConversationsError::NotRunning(id.clone()))
    }

    /// Lets all of them start nothing any more, and returns once none of them calls a model or a
    /// tool server.
    pub(crate) async fn drain(&self) {
        let all: Vec<_> = self
            .lock()
            .values()
            .map(|running| Arc::clone(&running.conversation))
            .collect();
        join_all(all.iter().map(|conversation| conversation.drain())).await;
    }

    pub(crate) fn ids(&self) -> Vec<ConversationId> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConversationId, RunningConversation>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningConversation {
    /// Whether the conversation continues only with an input of the user, or has failed.
    pub(crate) fn is_idle(&self) -> bool {
        self.conversation.is_closed() || is_idle(&self.conversation.state())
    }

    fn has_owner(&self, owner: &UserId) -> bool {
        self.conversation
            .state()
            .started
            .as_ref()
            .is_some_and(|started| started.owner.as_ref() == Some(owner))
    }

    /// Ends the conversation's task and its tool servers. Returns the last state.
    pub(crate) async fn close(
        self,
        reason: CloseReason,
    ) -> (Claim, Result<Arc<State>, ConversationsError>) {
        drop(self.title_task);
        let state = self.conversation.state();
        // First, because servers in the sandbox can only be shut down while it exists.
        self.parts.shut_down_tool_servers().await;
        // A sandbox that cannot be reached may have a running action, so it is kept.
        let may_clean_up = !state.has_pending_actions() || reason == CloseReason::Interrupted;
        // Nor is one that another host may use by now.
        let may_clean_up =
            may_clean_up && reason != CloseReason::Shutdown && !self.claim.lost().is_cancelled();
        let disposition = if may_clean_up {
            self.disposition
        } else {
            SandboxDisposition::Keep
        };
        let closed = self.conversation.close(disposition).await;
        (self.claim, closed.map(|()| state).map_err(Into::into))
    }
}
