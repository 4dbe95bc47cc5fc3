//! The trait of the store of profiles.

use async_trait::async_trait;
use protocol::UserId;
use secrecy::SecretSlice;

use crate::host::HostError;

/// A stored profile.
#[derive(Debug)]
pub struct StoredProfile {
    /// Increases with each write, from 1.
    pub revision: u64,
    /// The content, decrypted.
    pub content: SecretSlice<u8>,
}

/// Stores one document per user and one of the operator, who is `None`, encrypted. Implemented by
/// the composition root.
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Returns the document of a user. `None` if nothing is stored.
    ///
    /// # Errors
    /// [`HostError::Failed`] if it cannot be read or decrypted.
    async fn read(&self, owner: Option<&UserId>) -> Result<Option<StoredProfile>, HostError>;

    /// Replaces the document of a user whose latest revision is `revision`; 0 if there is none. The
    /// write is atomic. Returns `false` if another writer was faster.
    ///
    /// # Errors
    /// [`HostError::Failed`] if it cannot be written.
    async fn write(
        &self,
        owner: Option<&UserId>,
        revision: u64,
        content: SecretSlice<u8>,
    ) -> Result<bool, HostError>;

    /// Removes the document of a user. Succeeds if there is none.
    ///
    /// # Errors
    /// [`HostError::Failed`] if it cannot be removed.
    async fn remove(&self, owner: Option<&UserId>) -> Result<(), HostError>;
}
