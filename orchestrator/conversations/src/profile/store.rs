//! The trait of the store of profiles.

use async_trait::async_trait;
use secrecy::SecretSlice;

use super::UserId;
use crate::host::HostError;

/// A stored profile.
#[derive(Debug)]
pub struct StoredProfile {
    /// Increases with each write, from 1.
    pub revision: u64,
    /// The content, decrypted.
    pub content: SecretSlice<u8>,
}

/// Stores one document per user, encrypted. Implemented by the composition root.
#[async_trait]
pub trait ProfileStore: Send + Sync {
    /// Returns the document of a user. `None` if nothing is stored.
    ///
    /// # Errors
    /// [`HostError::Failed`] if it cannot be read or decrypted.
    async fn read(&self, user: &UserId) -> Result<Option<StoredProfile>, HostError>;

    /// Replaces the document of a user whose latest revision is `revision`; 0 if there is none. The write is atomic. Returns
    /// `false` if another writer was faster.
    ///
    /// # Errors
    /// [`HostError::Failed`] if it cannot be written.
    async fn write(&self, user: &UserId, revision: u64, content: SecretSlice<u8>) -> Result<bool, HostError>;
}
