//! Locks and workspaces for a program that is the only one to use its store.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use protocol::ConversationId;

use crate::host::{ConversationLocks, HostError, LockGuard, Workspaces};

/// Locks within this process. No other process may use the store.
#[derive(Debug, Clone, Default)]
pub struct ProcessLocks {
    /// A mutex, because no method waits while it holds it.
    held: Arc<Mutex<BTreeSet<String>>>,
}

/// Gives a lock back.
struct Held {
    name: String,
    locks: ProcessLocks,
}

impl ProcessLocks {
    fn take(&self, name: String) -> Option<LockGuard> {
        let is_free = self.held().insert(name.clone());
        is_free.then(|| Box::new(Held { name, locks: self.clone() }) as LockGuard)
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.held().remove(&self.name);
    }
}

impl ConversationLocks for ProcessLocks {
    fn lock(&self, conversation: &ConversationId) -> Result<Option<LockGuard>, HostError> {
        Ok(self.take(conversation.to_string()))
    }

    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError> {
        let folder = folder.canonicalize().map_err(|error| HostError::Failed(error.into()))?;
        Ok(self.take(folder.display().to_string()))
    }

    fn is_locked(&self, conversation: &ConversationId) -> bool {
        self.held().contains(conversation.as_str())
    }
}

/// For conversations that have no folders of their own on this host: forks share the original's.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWorkspaces;

#[async_trait]
impl Workspaces for NoWorkspaces {
    async fn fork(
        &self,
        _from: &ConversationId,
        _named: Option<&str>,
        _to: &ConversationId,
    ) -> Result<Option<String>, HostError> {
        Ok(None)
    }

    fn is_empty(&self, _conversation: &ConversationId) -> bool {
        false
    }

    fn remove_if_empty(&self, _conversation: &ConversationId) {}

    fn remove(&self, _conversation: &ConversationId) -> Result<(), HostError> {
        Ok(())
    }
}
