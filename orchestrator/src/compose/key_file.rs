//! Keys in files of the state folder, which only this user can read.

use std::io::{ErrorKind, Write as _};
use std::path::Path;

use anyhow::Context as _;
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};

use super::unusable_files::as_usage_error;
use crate::exit::UsageError;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// Minimum length of a key.
const MIN_KEY_LENGTH: usize = 16;

/// Reads a key from a file. Creates the file with a new key if it does not exist. Returns the key,
/// and whether it is new.
pub(super) fn load_or_create(path: &Path) -> anyhow::Result<(SecretString, bool)> {
    let created = create(path).with_context(|| format!("cannot create the key {}", path.display()));
    let is_new = created.map_err(as_usage_error)?;
    Ok((load(path)?, is_new))
}

/// Reads a key from a file.
pub(super) fn load(path: &Path) -> anyhow::Result<SecretString> {
    let text = input_file::read_named(path, MAX_SETTINGS_LENGTH).and_then(input_file::to_text);
    let text = text.with_context(|| format!("cannot read the key {}", path.display()));
    check(
        &path.display().to_string(),
        text.map_err(as_usage_error)?.trim(),
    )
}

/// Returns the key in an environment variable. `None` if it is not set.
pub(crate) fn key_from_variable(name: &str) -> anyhow::Result<Option<SecretString>> {
    let key = std::env::var(name).ok();
    key.map(|key| check(name, &key)).transpose()
}

/// Checks a key of this source: a file or a variable.
pub(super) fn check(source: &str, key: &str) -> anyhow::Result<SecretString> {
    if key.len() < MIN_KEY_LENGTH || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let text = format!("{source} must have at least {MIN_KEY_LENGTH} visible ASCII characters");
        return Err(UsageError(text).into());
    }
    Ok(SecretString::from(key))
}

/// Writes a new key to a file that does not exist. Returns whether it did.
fn create(path: &Path) -> anyhow::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("no random bytes"))?;
    let key = SecretString::from(hex::encode(bytes));
    let folder = path.parent().context("it has no folder")?;
    // Only this user can read a temporary file.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    writeln!(file, "{}", key.expose_secret())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn new_key_is_kept_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (first, is_new) = load_or_create(&path).unwrap();
        assert!(is_new);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let (second, is_new) = load_or_create(&path).unwrap();
        assert!(!is_new);
        assert_eq!(first.expose_secret(), second.expose_secret());
        assert_eq!(first.expose_secret().len(), 64);
    }

    #[test]
    fn key_is_refused_when_it_is_empty_or_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for content in [
            "",
            "\n",
            "short",
            "not ASCII, long enough: ö",
            "two words of a long key",
        ] {
            std::fs::write(&path, content).unwrap();
            let error = load_or_create(&path).unwrap_err();
            assert!(
                error.to_string().contains("must have at least 16"),
                "{content:?}: {error}"
            );
        }
    }
}
