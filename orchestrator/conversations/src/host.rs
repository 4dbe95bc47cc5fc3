//! What the application layer needs of the machine it runs on: locks and folders, as traits.

use std::error::Error;
use std::path::Path;

use async_trait::async_trait;
use protocol::ConversationId;

/// Keeps a lock until it is dropped.
pub type LockGuard = Box<dyn Send + Sync>;

/// Makes one process at a time the writer of a conversation. A store that several hosts share has locks that they share.
pub trait ConversationLocks: Send + Sync {
    /// Takes a conversation's lock. `None` if another process holds it.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the lock can be neither taken nor found taken.
    fn lock(&self, conversation: &ConversationId) -> Result<Option<LockGuard>, HostError>;

    /// Marks a folder of this host as one that a process works in. `None` if another one has marked it.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the folder cannot be opened.
    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError>;

    /// Whether a process, perhaps this one, holds a conversation's lock.
    fn is_locked(&self, conversation: &ConversationId) -> bool;
}

/// The folders that conversations work in where the user chose none.
#[async_trait]
pub trait Workspaces: Send + Sync {
    /// Copies the own folder of `from` for `to`, and returns the path of the copy. `None` if `named`, the folder in the log
    /// of `from`, is not its own: a folder that the user chose is shared.
    ///
    /// # Errors
    /// [`HostError::Refused`] if the folder was replaced, [`HostError::Failed`] if it cannot be copied.
    async fn fork(
        &self,
        from: &ConversationId,
        named: Option<&str>,
        to: &ConversationId,
    ) -> Result<Option<String>, HostError>;

    /// Whether a conversation's own folder exists and is empty.
    fn is_empty(&self, conversation: &ConversationId) -> bool;

    /// Removes a conversation's own folder if it is empty. Requires that the conversation is locked and has no sandbox,
    /// which could have the folder mounted.
    fn remove_if_empty(&self, conversation: &ConversationId);

    /// Removes a conversation's own folder with its contents, if it has one. Requires the same.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the folder cannot be removed.
    fn remove(&self, conversation: &ConversationId) -> Result<(), HostError>;
}

/// Why the machine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The request cannot be met; the text says what the user can do.
    #[error("{0}")]
    Refused(String),
    /// An operation failed.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}
