//! The store of users' settings and secrets, encrypted in the state folder.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{HostError, ProfileStore, StoredProfile, UserId};
use secrecy::{SecretSlice, SecretString};
use storage::{SealedDocument, SealedDocuments, SealedError, SealingKey};

use super::{StateDir, key_file};
use crate::exit::UsageError;

/// Environment variable of the key that encrypts settings.
const KEY_VARIABLE: &str = "GLOVEBOX_SECRETS_KEY";

/// Environment variable of a file with that key.
const KEY_FILE_VARIABLE: &str = "GLOVEBOX_SECRETS_KEY_FILE";

/// Advice for a file of another key.
const RESTORE_KEY: &str = "restore the key in GLOVEBOX_SECRETS_KEY, GLOVEBOX_SECRETS_KEY_FILE or the file secrets-key next to \
                           it; or remove the file, and let users enter their settings again";

struct SealedProfiles(SealedDocuments);

/// Opens the store in the state folder.
pub(crate) async fn profile_store(state_dir: &StateDir) -> anyhow::Result<Arc<dyn ProfileStore>> {
    let key = SealingKey::new(&load_key(state_dir)?);
    let opened = SealedDocuments::open(state_dir.path().join("settings.db"), key).await;
    match opened {
        Ok(documents) => Ok(Arc::new(SealedProfiles(documents))),
        Err(error @ SealedError::WrongKey(_)) => Err(UsageError(format!("{error}: {RESTORE_KEY}")).into()),
        Err(error) => Err(error).context("cannot open the stored settings"),
    }
}

/// Reads the key from the environment, else from the state folder, where the first start generates it.
fn load_key(state_dir: &StateDir) -> anyhow::Result<SecretString> {
    if let Ok(key) = std::env::var(KEY_VARIABLE) {
        return key_file::check(KEY_VARIABLE, &key);
    }
    match std::env::var_os(KEY_FILE_VARIABLE) {
        Some(path) => key_file::load(Path::new(&path)),
        None => Ok(key_file::load_or_create(&state_dir.path().join("secrets-key"))?.0),
    }
}

#[async_trait]
impl ProfileStore for SealedProfiles {
    async fn read(&self, user: &UserId) -> Result<Option<StoredProfile>, HostError> {
        let document = self.0.read(user.as_str()).await.map_err(failed)?;
        Ok(document.map(|SealedDocument { revision, content }| StoredProfile { revision, content }))
    }

    async fn write(&self, user: &UserId, revision: u64, content: SecretSlice<u8>) -> Result<bool, HostError> {
        match self.0.write(user.as_str(), revision, content).await {
            Ok(()) => Ok(true),
            Err(SealedError::Conflict(_)) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}

fn failed(error: SealedError) -> HostError {
    HostError::Failed(error.into())
}
