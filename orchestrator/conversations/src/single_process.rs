//! Locks and workspaces for a program whose store no other process uses.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use protocol::ConversationId;
use tokio_util::sync::CancellationToken;

use crate::host::{ConversationLock, ConversationLocks, HostError, LockGuard, Workspaces};

/// Locks within this process. No other process may use the store.
#[derive(Debug, Clone, Default)]
pub struct ProcessLocks {
    /// A blocking mutex, because it is never held across an await.
    held: Arc<Mutex<BTreeSet<String>>>,
}

/// Releases a lock when it is dropped.
struct ProcessLockGuard {
    name: String,
    locks: ProcessLocks,
}

impl ProcessLocks {
    fn acquire(&self, name: String) -> Option<LockGuard> {
        let is_free = self.held().insert(name.clone());
        is_free.then(|| {
            Box::new(ProcessLockGuard {
                name,
                locks: self.clone(),
            }) as LockGuard
        })
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProcessLockGuard {
    fn drop(&mut self) {
        self.locks.held().remove(&self.name);
    }
}

#[async_trait]
impl ConversationLocks for ProcessLocks {
    async fn lock(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ConversationLock>, HostError> {
        let guard = self.acquire(conversation.to_string());
        Ok(guard.map(|guard| ConversationLock {
            guard,
            lost: CancellationToken::new(),
        }))
    }

    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError> {
        let folder = folder.canonicalize().map_err(|error| {
            HostError::Failed(
                format!("cannot open the folder {}: {error}", folder.display()).into(),
            )
        })?;
        Ok(self.acquire(folder.display().to_string()))
    }

    async fn locked(
        &self,
        conversations: &[ConversationId],
    ) -> Result<BTreeSet<ConversationId>, HostError> {
        let held = self.held();
        Ok(conversations
            .iter()
            .filter(|id| held.contains(id.as_str()))
            .cloned()
            .collect())
    }
}

/// Workspaces of conversations without folders of their own. Forks share the folder of the
/// original.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWorkspaces;

#[async_trait]
impl Workspaces for NoWorkspaces {
    async fn fork(
        &self,
        _from: &ConversationId,
        _recorded: Option<&str>,
        _to: &ConversationId,
    ) -> Result<Option<String>, HostError> {
        Ok(None)
    }

    fn is_empty(&self, _conversation: &ConversationId) -> bool {
        false
    }

    fn remove_if_empty(&self, _conversation: &ConversationId) {}

    async fn remove(&self, _conversation: &ConversationId) -> Result<(), HostError> {
        Ok(())
    }
}
