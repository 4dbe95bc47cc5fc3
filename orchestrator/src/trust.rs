//! The user's trust in files: one decision per path and content, stored in the state folder.
//!
//! A repository or an agent may have written a file of the current folder or of a workspace. Such a
//! file may narrow what the user's own configuration allows. Everything else in it takes effect
//! only after the user's decision, and only as long as no byte of the file changes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::input_file::{self, MAX_SETTINGS_LENGTH};
use crate::resolved_path::ResolvedPath;

/// Maximum number of stored decisions. The oldest ones are dropped.
const MAX_DECISIONS: usize = 1000;

/// The path and content of a file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) path: ResolvedPath,
    sha256: String,
}

/// What the user decided about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// All keys of the file take effect.
    Trusted,
    /// Only keys that grant nothing take effect, and the user is not asked again. A run that needs
    /// the rest is refused.
    Denied,
}

/// A file that may grant rights to sandboxes, models or agents, and about which the user has not
/// decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndecidedFile {
    pub(crate) file: Fingerprint,
    pub(crate) reason: TrustReason,
}

/// Why a file needs the user's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrustReason {
    /// It sets these keys. If denied, the other keys take effect.
    Keys(Vec<String>),
    /// It is a policy in the current folder. If denied, runs with it are refused, because without
    /// it fewer actions would need confirmation.
    Policy,
    /// It takes effect, and the sandbox can write it. If denied, that sandbox is refused.
    WritableBySandbox,
}

/// The user's decisions.
#[derive(Debug, Clone)]
pub(crate) struct TrustStore {
    path: PathBuf,
    decisions: Vec<Decision>,
}

/// One decision, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Decision {
    pub(crate) path: String,
    sha256: String,
    pub(crate) verdict: Verdict,
}

impl Fingerprint {
    /// Computes the fingerprint of a file with this content.
    pub(crate) fn new(path: &Path, content: &[u8]) -> io::Result<Self> {
        let sha256 = hex::encode(digest(&SHA256, content).as_ref());
        Ok(Self {
            path: ResolvedPath::new(path)?,
            sha256,
        })
    }
}

impl TrustStore {
    /// Reads the decisions of a state folder, which need not exist.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("trust.json");
        let decisions = read(&path)?;
        Ok(Self { path, decisions })
    }

    /// The file that holds the decisions.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All decisions, the oldest first.
    pub(crate) fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The decision about a file with this content. `None` if there is none for this path and
    /// content.
    pub(crate) fn verdict(&self, file: &Fingerprint) -> Option<Verdict> {
        let decided = |decision: &&Decision| {
            Path::new(&decision.path) == &*file.path && decision.sha256 == file.sha256
        };
        self.decisions
            .iter()
            .find(decided)
            .map(|decision| decision.verdict)
    }

    /// Stores a decision, which replaces an earlier one about the same path.
    pub(crate) fn decide(&mut self, file: &Fingerprint, verdict: Verdict) -> io::Result<()> {
        let not_utf8 = || io::Error::new(io::ErrorKind::InvalidInput, "its path is not UTF-8");
        let path = file.path.to_str().ok_or_else(not_utf8)?.to_owned();
        let _lock = self.lock_and_reread()?;
        self.decisions.retain(|decision| decision.path != path);
        self.decisions.push(Decision {
            path,
            sha256: file.sha256.clone(),
            verdict,
        });
        let excess = self.decisions.len().saturating_sub(MAX_DECISIONS);
        self.decisions.drain(..excess);
        self.save()
    }

    /// Removes the decision about a path. Returns false if there is none.
    pub(crate) fn revoke(&mut self, path: &Path) -> io::Result<bool> {
        let _lock = self.lock_and_reread()?;
        let before = self.decisions.len();
        self.decisions
            .retain(|decision| Path::new(&decision.path) != path);
        let is_changed = self.decisions.len() < before;
        if is_changed {
            self.save()?;
        }
        Ok(is_changed)
    }

    /// Locks the decisions against other processes until the file is dropped. Reads them again,
    /// because another process may have changed them while the user was asked.
    fn lock_and_reread(&mut self) -> io::Result<File> {
        // The lock is a separate file, because that of the decisions is replaced at each change.
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(self.path.with_extension("lock"))?;
        lock.lock()?;
        self.decisions = read(&self.path)?;
        Ok(lock)
    }

    /// Writes the decisions atomically, readable only by the user.
    fn save(&self) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&serde_json::to_vec_pretty(&self.decisions)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<Decision>> {
    match input_file::read_found(path, MAX_SETTINGS_LENGTH) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn decision_holds_until_one_byte_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "a").unwrap();
        let (one, other) = (
            Fingerprint::new(&path, b"a").unwrap(),
            Fingerprint::new(&path, b"b").unwrap(),
        );
        let mut store = TrustStore::open(folder.path()).unwrap();
        assert_eq!(store.verdict(&one), None);
        store.decide(&one, Verdict::Trusted).unwrap();
        let mut store = TrustStore::open(folder.path()).unwrap();
        assert_eq!(
            (store.verdict(&one), store.verdict(&other)),
            (Some(Verdict::Trusted), None)
        );
        let mode = store.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        store.decide(&other, Verdict::Denied).unwrap();
        assert_eq!(
            (store.verdict(&one), store.verdict(&other)),
            (None, Some(Verdict::Denied))
        );
        assert!(store.revoke(&one.path).unwrap());
        assert!(!store.revoke(&one.path).unwrap());
        assert_eq!(
            TrustStore::open(folder.path()).unwrap().decisions().len(),
            0
        );
    }

    #[test]
    fn decisions_of_other_processes_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: String| Fingerprint::new(&folder.path().join(name), b"").unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                // Opened before the others decide, as while a question is open.
                let mut store = TrustStore::open(folder.path()).unwrap();
                scope.spawn(move || {
                    for number in 0..8 {
                        store
                            .decide(&file(format!("{writer}-{number}")), Verdict::Trusted)
                            .unwrap();
                    }
                    assert!(store.revoke(&file(format!("{writer}-0")).path).unwrap());
                });
            }
        });
        assert_eq!(
            TrustStore::open(folder.path()).unwrap().decisions().len(),
            4 * 7
        );
    }
}
