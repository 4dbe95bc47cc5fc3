//! Traits for locks and folders of the host.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use async_trait::async_trait;
use protocol::ConversationId;
use tokio_util::sync::CancellationToken;

/// Holds a lock until it is dropped.
pub type LockGuard = Box<dyn Send + Sync>;

/// The lock of a conversation.
pub struct ConversationLock {
    /// Releases the lock when it is dropped.
    pub guard: LockGuard,
    /// Cancelled when the lock is lost, because this host could not renew it: another host may hold
    /// it by now.
    pub lost: CancellationToken,
}

/// Locks that make one process at a time the writer of a conversation. Hosts that share a store
/// share its locks.
#[async_trait]
pub trait ConversationLocks: Send + Sync {
    /// Locks a conversation. `None` if another process holds the lock.
    ///
    /// # Errors
    /// [`HostError::Failed`] if it is unknown whether another process holds the lock.
    async fn lock(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ConversationLock>, HostError>;

    /// Locks a folder of this host that a process works in. `None` if another process holds the
    /// lock.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the folder cannot be opened.
    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError>;

    /// Returns those of the conversations whose lock a process holds, perhaps this one.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the locks cannot be read.
    async fn locked(
        &self,
        conversations: &[ConversationId],
    ) -> Result<BTreeSet<ConversationId>, HostError>;

    /// Returns the address of the other host that holds a conversation's lock. `None` if no other
    /// host holds it, or it has no address.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the locks cannot be read.
    async fn other_holder(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<String>, HostError> {
        let _ = conversation;
        Ok(None)
    }

    /// Waits until other hosts can acquire a lock that this process has dropped, or its release has
    /// failed: it expires then.
    async fn wait_until_released(&self, conversation: &ConversationId) {
        let _ = conversation;
    }
}

/// Folders of conversations for which the user chose none.
#[async_trait]
pub trait Workspaces: Send + Sync {
    /// Copies the folder of conversation `from` for conversation `to`. Returns the path of the
    /// copy. `None` if the user chose the folder of `from`: it is then shared. `recorded` is the
    /// folder in the log of `from`.
    ///
    /// # Errors
    /// [`HostError::Refused`] if the folder was replaced since, [`HostError::Failed`] if it cannot
    /// be copied.
    async fn fork(
        &self,
        from: &ConversationId,
        recorded: Option<&str>,
        to: &ConversationId,
    ) -> Result<Option<String>, HostError>;

    /// Whether a conversation's own folder exists and is empty.
    fn is_empty(&self, conversation: &ConversationId) -> bool;

    /// Removes a conversation's own folder if it is empty. Requires that the conversation is locked
    /// and has no sandbox, which could have the folder mounted.
    fn remove_if_empty(&self, conversation: &ConversationId);

    /// Removes a conversation's own folder with its contents, if it has one. The requirements of
    /// [`remove_if_empty`](Self::remove_if_empty) apply.
    ///
    /// # Errors
    /// [`HostError::Failed`] if the folder cannot be removed.
    async fn remove(&self, conversation: &ConversationId) -> Result<(), HostError>;
}

/// Failure of an operation of the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The request cannot be fulfilled. The text has what the user can do.
    #[error("{0}")]
    Refused(String),
    /// Neither the configuration nor the user's settings name a model.
    #[error("no model is chosen: choose one in the settings")]
    NoModel,
    /// The provider of the model requires a key, and there is none.
    #[error("there is no key for the model {0}: add it to the settings")]
    NoModelKey(String),
    /// An operation failed.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}
