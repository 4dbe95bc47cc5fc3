//! The key of the server.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::SecretString;

use super::StateDir;
use crate::exit::UsageError;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// V0's environment variable of the key.
const KEY_VARIABLE: &str = "SESSION_API_KEY";

/// Minimum length of a key.
const MIN_KEY_LENGTH: usize = 16;

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
            return Ok(Self { secret: check(key, &KEY_VARIABLE)?, new_file: None });
        }
        let path = state_dir.path().join("server-key");
        let new_file =
            generate(&path).with_context(|| format!("cannot create the key {}", path.display()))?;
        let text = input_file::read_named(&path, MAX_SETTINGS_LENGTH).and_then(input_file::to_text);
        let text = text.with_context(|| format!("cannot read the key {}", path.display()))?;
        let secret = check(text.trim().to_owned(), &path.display())?;
        Ok(Self { secret, new_file: new_file.then_some(path) })
    }
}

/// Returns a key that cannot be guessed and can be sent in a header. `source` is where it was read.
fn check(key: String, source: &dyn Display) -> Result<SecretString, UsageError> {
    if key.len() < MIN_KEY_LENGTH || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = format!("{source} must have at least {MIN_KEY_LENGTH} visible ASCII characters");
        return Err(UsageError(text));
    }
    Ok(SecretString::from(key))
}

/// Writes a new key to a file that does not exist. Returns whether it did.
fn generate(path: &PathBuf) -> anyhow::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow::anyhow!("no random bytes"))?;
    let key: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = path.parent().context("it has no folder")?;
    // Only this user can read a temporary file.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{key}")?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error.into()),
    }
}
