//! The key of the server.

use std::path::PathBuf;

use secrecy::SecretString;

use super::{StateDir, key_file};

/// V0's environment variable of the key.
const KEY_VARIABLE: &str = "SESSION_API_KEY";

/// The key that guards the server.
pub(crate) struct ServerKey {
    pub(crate) secret: SecretString,
    pub(crate) source: KeySource,
}

/// Where the key of the server is from.
pub(crate) enum KeySource {
    Variable(&'static str),
    File(PathBuf),
    /// The file that this process has created with a new key.
    NewFile(PathBuf),
}

impl ServerKey {
    /// Reads the key from the environment, else from the state folder. Generates it if there is
    /// none, so that the caller prints it right afterwards: a later start does not.
    pub(crate) fn load(state_dir: &StateDir) -> anyhow::Result<Self> {
        if let Some(secret) = key_file::key_from_variable(KEY_VARIABLE)? {
            return Ok(Self {
                secret,
                source: KeySource::Variable(KEY_VARIABLE),
            });
        }
        let path = Self::path(state_dir);
        let (secret, is_new) = key_file::load_or_create(&path)?;
        let source = if is_new {
            KeySource::NewFile(path)
        } else {
            KeySource::File(path)
        };
        Ok(Self { secret, source })
    }

    /// Checks the key if there is one.
    pub(crate) fn check(state_dir: &StateDir) -> anyhow::Result<()> {
        if Self::path(state_dir).exists() {
            Self::load(state_dir)?;
        }
        Ok(())
    }

    fn path(state_dir: &StateDir) -> PathBuf {
        state_dir.path().join("server-key")
    }
}
