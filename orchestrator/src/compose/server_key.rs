//! The key of the server.

use std::path::PathBuf;

use secrecy::SecretString;

use super::{StateDir, key_file};

/// V0's environment variable of the key.
const KEY_VARIABLE: &str = "SESSION_API_KEY";

/// The key that guards the server.
pub(crate) struct ServerKey {
    pub(crate) secret: SecretString,
    /// The file that this process has created with a new key.
    pub(crate) new_file: Option<PathBuf>,
}

impl ServerKey {
    /// Reads the key from the environment, else from the state folder, where the first start generates it.
    pub(crate) fn load(state_dir: &StateDir) -> anyhow::Result<Self> {
        if let Ok(key) = std::env::var(KEY_VARIABLE) {
            return Ok(Self { secret: key_file::check(KEY_VARIABLE, &key)?, new_file: None });
        }
        let path = state_dir.path().join("server-key");
        let (secret, is_new) = key_file::load_or_create(&path)?;
        Ok(Self { secret, new_file: is_new.then_some(path) })
    }
}
