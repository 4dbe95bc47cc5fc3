//! The right to write one conversation.

use std::path::Path;
use std::sync::Arc;

use protocol::ConversationId;
use tokio_util::sync::CancellationToken;

use crate::error::ConversationsError;
use crate::host::{ConversationLock, ConversationLocks, LockGuard, Workspaces};

/// The exclusive right to write one conversation. Other processes can claim it once this is dropped
/// and the conversation's task has ended.
///
/// If it is dropped before its new conversation is started, it removes the workspace of the
/// conversation if that is empty.
pub struct Claim {
    id: ConversationId,
    locks: Arc<dyn ConversationLocks>,
    workspaces: Arc<dyn Workspaces>,
    is_unstarted: bool,
    conversation_lock: Arc<LockGuard>,
    lost: CancellationToken,
    folder_lock: Option<Arc<LockGuard>>,
}

/// How a conversation uses its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderUse {
    /// No other process works in it.
    Exclusive,
    /// Another process works in it too, and may change the same files.
    Shared,
}

impl Claim {
    pub(crate) async fn new(
        id: ConversationId,
        locks: Arc<dyn ConversationLocks>,
        workspaces: Arc<dyn Workspaces>,
    ) -> Result<Self, ConversationsError> {
        let lock = locks
            .lock(&id)
            .await?
            .ok_or_else(|| ConversationsError::Locked(id.clone()))?;
        let ConversationLock { guard, lost } = lock;
        let conversation_lock = Arc::new(guard);
        Ok(Self {
            id,
            locks,
            workspaces,
            is_unstarted: false,
            conversation_lock,
            lost,
            folder_lock: None,
        })
    }

    /// Marks the conversation as not started yet: it has no log.
    pub(crate) fn into_unstarted(mut self) -> Self {
        self.is_unstarted = true;
        self
    }

    /// Returns the conversation's id.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// Locks a folder of this host that the conversation works in, until the claim is dropped.
    ///
    /// # Errors
    /// [`ConversationsError::Host`] if the folder cannot be opened.
    pub fn lock_folder(&mut self, folder: &Path) -> Result<FolderUse, ConversationsError> {
        self.folder_lock = self.locks.lock_folder(folder)?.map(Arc::new);
        Ok(if self.folder_lock.is_some() {
            FolderUse::Exclusive
        } else {
            FolderUse::Shared
        })
    }

    /// Returns the token that is cancelled when the claim is lost: another host may hold it, and
    /// appends fail.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Returns the locks. The conversation's task holds them until it has ended.
    pub(crate) fn locks(&self) -> Arc<dyn Send + Sync> {
        Arc::new((
            Arc::clone(&self.conversation_lock),
            self.folder_lock.clone(),
        ))
    }

    /// Marks the conversation as started. From now on its log determines whether the workspace can
    /// be removed.
    pub(crate) fn mark_started(&mut self) {
        self.is_unstarted = false;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_unstarted {
            self.workspaces.remove_if_empty(&self.id);
        }
    }
}
