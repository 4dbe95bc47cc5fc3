//! The store of users' settings and secrets, encrypted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use conversations::{HostError, ProfileStore, StoredProfile};
use protocol::UserId;
use secrecy::{SecretSlice, SecretString};
use storage::{SealedDocument, SealedDocuments, SealedError, SealingKey};

use super::unusable_files::cannot_open;
use super::{StateDir, key_file};
use crate::exit::UsageError;

/// Environment variable of the key that encrypts settings.
const KEY_VARIABLE: &str = "GLOVEBOX_SECRETS_KEY";

/// Environment variable of a file with that key.
const KEY_FILE_VARIABLE: &str = "GLOVEBOX_SECRETS_KEY_FILE";

/// Advice for documents of another key.
const RESTORE_KEY: &str = "restore the key in GLOVEBOX_SECRETS_KEY, GLOVEBOX_SECRETS_KEY_FILE or the file secrets-key of the \
                           state folder; or remove what it has encrypted, and let users enter their settings again";

/// Name of the file in the state folder.
pub(super) const FILE_NAME: &str = "settings.db";

pub(super) struct SealedProfiles(SealedDocuments);

/// Explains what to do if the documents were encrypted with another key.
pub(super) fn explain(error: SealedError) -> anyhow::Error {
    match error {
        error @ SealedError::WrongKey(_) => UsageError(format!("{error}: {RESTORE_KEY}")).into(),
        SealedError::Open(error) => cannot_open("the stored settings", error),
        error => anyhow::Error::new(error).context("cannot open the stored settings"),
    }
}

/// Opens documents with the key from the environment, else from the state folder, where the first
/// start generates it. Keeps no new key that fits nothing: it could be taken for the right one.
pub(super) async fn open_with_key<F>(
    state_dir: &StateDir,
    open: impl FnOnce(SealingKey) -> F,
) -> anyhow::Result<Arc<dyn ProfileStore>>
where
    F: Future<Output = Result<SealedDocuments, SealedError>>,
{
    let path = key_path(state_dir);
    let (secret, is_new) = match configured_key()? {
        Some(key) => (key, false),
        None => key_file::load_or_create(&path)?,
    };
    match open(SealingKey::new(&secret)).await {
        Ok(documents) => Ok(Arc::new(SealedProfiles(documents))),
        Err(error @ SealedError::WrongKey(_)) if is_new => {
            // On failure it stays.
            let _ = std::fs::remove_file(&path);
            Err(explain(error))
        }
        Err(error) => Err(explain(error)),
    }
}

/// Reads the key from the environment, else from the state folder. `None` if there is none yet.
pub(super) fn find_key(state_dir: &StateDir) -> anyhow::Result<Option<SealingKey>> {
    let (configured, path) = (configured_key()?, key_path(state_dir));
    let secret = match configured {
        None if path.exists() => Some(key_file::load(&path)?),
        configured => configured,
    };
    Ok(secret.as_ref().map(SealingKey::new))
}

fn configured_key() -> anyhow::Result<Option<SecretString>> {
    match (
        std::env::var(KEY_VARIABLE),
        std::env::var_os(KEY_FILE_VARIABLE),
    ) {
        (Ok(key), _) => key_file::check(KEY_VARIABLE, &key).map(Some),
        (Err(_), Some(path)) => key_file::load(Path::new(&path))
            .map(Some)
            .map_err(|error| UsageError(format!("{KEY_FILE_VARIABLE}: {error:#}")).into()),
        (Err(_), None) => Ok(None),
    }
}

fn key_path(state_dir: &StateDir) -> PathBuf {
    state_dir.path().join("secrets-key")
}

#[async_trait]
impl ProfileStore for SealedProfiles {
    async fn read(&self, owner: Option<&UserId>) -> Result<Option<StoredProfile>, HostError> {
        let document = self.0.read(&document_name(owner)).await.map_err(failed)?;
        Ok(
            document
                .map(|SealedDocument { revision, content }| StoredProfile { revision, content }),
        )
    }

    async fn write(
        &self,
        owner: Option<&UserId>,
        revision: u64,
        content: SecretSlice<u8>,
    ) -> Result<bool, HostError> {
        match self.0.write(&document_name(owner), revision, content).await {
            Ok(()) => Ok(true),
            Err(SealedError::Conflict(_)) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    async fn remove(&self, owner: Option<&UserId>) -> Result<(), HostError> {
        self.0.remove(&document_name(owner)).await.map_err(failed)
    }
}

/// Returns the name of the document of a user, or of the operator. No user's name has a slash.
fn document_name(owner: Option<&UserId>) -> String {
    owner.map_or_else(|| "single".to_owned(), |user| format!("users/{user}"))
}

fn failed(error: SealedError) -> HostError {
    HostError::Failed(match error {
        // Another host of the same database has another key, which this one meets only now.
        error @ SealedError::WrongKey(_) => UsageError(format!("{error}: {RESTORE_KEY}")).into(),
        error => error.into(),
    })
}
