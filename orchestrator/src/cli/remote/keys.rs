//! Keys for servers, in a file of the state folder that only this user can read.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use secrecy::{ExposeSecret as _, SecretString};

use crate::compose::StateDir;
use crate::input_file::{self, MAX_SETTINGS_LENGTH};

/// The keys, by the addresses of their servers.
pub(super) struct ServerKeys {
    path: PathBuf,
    keys: BTreeMap<String, String>,
}

impl ServerKeys {
    /// Reads the keys. There are none if there is no file.
    pub(super) fn load(state_dir: &StateDir) -> anyhow::Result<Self> {
        let path = state_dir.path().join("servers.json");
        let keys = match path.try_exists()? {
            true => input_file::read_named(&path, MAX_SETTINGS_LENGTH)
                .map_err(anyhow::Error::from)
                .and_then(|text| Ok(serde_json::from_slice(&text)?))
                .with_context(|| format!("cannot read the keys in {}", path.display()))?,
            false => BTreeMap::new(),
        };
        Ok(Self { path, keys })
    }

    pub(super) fn find(&self, url: &str) -> Option<SecretString> {
        self.keys
            .get(url)
            .map(|key| SecretString::from(key.as_str()))
    }

    /// Stores the key of a server.
    pub(super) fn set(&mut self, url: &str, key: &SecretString) -> anyhow::Result<()> {
        let key = key.expose_secret().to_owned();
        self.keys.insert(url.to_owned(), key);
        self.save()
    }

    /// Removes the key of a server. Returns whether there was one.
    pub(super) fn remove(&mut self, url: &str) -> anyhow::Result<bool> {
        let is_removed = self.keys.remove(url).is_some();
        if is_removed {
            self.save()?;
        }
        Ok(is_removed)
    }

    fn save(&self) -> anyhow::Result<()> {
        let write = || {
            let folder = self.path.parent().context("it has no folder")?;
            // Only this user can read a temporary file.
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(serde_json::to_string_pretty(&self.keys)?.as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(&self.path)?;
            anyhow::Ok(())
        };
        write().with_context(|| format!("cannot store the key in {}", self.path.display()))
    }
}
