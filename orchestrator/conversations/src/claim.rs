//! The right to write one conversation.

use std::path::Path;
use std::sync::Arc;

use protocol::ConversationId;

use crate::error::ConversationsError;
use crate::host::{ConversationLocks, LockGuard, Workspaces};

/// The right to write one conversation, which no other process has until this is dropped and the conversation's task has
/// ended.
///
/// Dropped before its new conversation was started, it removes the workspace that was created for that, if it is empty.
pub struct Claim {
    id: ConversationId,
    locks: Arc<dyn ConversationLocks>,
    workspaces: Arc<dyn Workspaces>,
    is_unstarted: bool,
    conversation: Arc<LockGuard>,
    folder: Option<Arc<LockGuard>>,
}

/// Who works in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderUse {
    /// Only this conversation.
    Exclusive,
    /// Another process too: both may change the same files.
    Shared,
}

impl Claim {
    pub(crate) fn new(
        id: ConversationId,
        locks: Arc<dyn ConversationLocks>,
        workspaces: Arc<dyn Workspaces>,
    ) -> Result<Self, ConversationsError> {
        let lock = locks.lock(&id)?.ok_or_else(|| ConversationsError::Locked(id.clone()))?;
        Ok(Self { id, locks, workspaces, is_unstarted: false, conversation: Arc::new(lock), folder: None })
    }

    /// Marks the conversation as one that has no log yet.
    pub(crate) fn unstarted(mut self) -> Self {
        self.is_unstarted = true;
        self
    }

    /// The conversation.
    pub fn id(&self) -> &ConversationId {
        &self.id
    }

    /// Marks a folder of this host as one that the conversation works in, for as long as the claim lasts.
    ///
    /// # Errors
    /// [`ConversationsError::Host`] if the folder cannot be opened.
    pub fn mark_folder(&mut self, folder: &Path) -> Result<FolderUse, ConversationsError> {
        self.folder = self.locks.lock_folder(folder)?.map(Arc::new);
        Ok(if self.folder.is_some() { FolderUse::Exclusive } else { FolderUse::Shared })
    }

    /// The locks, which the conversation's task holds until it has ended.
    pub(crate) fn lock(&self) -> Arc<dyn Send + Sync> {
        Arc::new((Arc::clone(&self.conversation), self.folder.clone()))
    }

    /// From here on the log says whether the workspace can be removed.
    pub(crate) fn start(&mut self) {
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
