//! The folder that keeps everything between runs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use protocol::ConversationId;
use sandbox::HostSecret;
use storage::{Durability, SqliteStore};

const LOCK_ATTEMPTS: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The folder that keeps everything between runs. Only its owner can look into it.
#[derive(Debug, Clone)]
pub(crate) struct StateDir(PathBuf);

impl StateDir {
    /// Opens the folder, making it if it is not there.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        private_folder(path)?;
        let path = path.canonicalize().with_context(|| format!("opening {}", path.display()))?;
        Ok(Self(path))
    }

    /// Opens the store of event logs to read it, even if its file cannot be written.
    pub(crate) async fn store_to_read(&self, durability: Durability) -> anyhow::Result<Arc<SqliteStore>> {
        let path = self.0.join("glovebox.db");
        let store = SqliteStore::open_to_read(&path, durability).await;
        store.map(Arc::new).with_context(|| format!("opening the event logs in {}", path.display()))
    }

    /// Opens the store of event logs.
    pub(crate) async fn store(&self, durability: Durability) -> anyhow::Result<Arc<SqliteStore>> {
        let path = self.0.join("glovebox.db");
        let store = SqliteStore::open(&path, durability).await;
        store.map(Arc::new).with_context(|| format!("opening the event logs in {}", path.display()))
    }

    /// Makes the folder that a conversation works in when none is named.
    pub(crate) fn workspace(&self, conversation: &ConversationId) -> anyhow::Result<PathBuf> {
        let path = self.workspace_path(conversation);
        private_folder(&path)?;
        Ok(path)
    }

    /// The same folder, if it is the one that the conversation's log names. It may not be there: an empty one is removed.
    pub(crate) fn workspace_in_log(
        &self,
        conversation: &ConversationId,
        named: Option<&str>,
    ) -> Option<PathBuf> {
        let path = self.workspace_path(conversation);
        named.filter(|named| Path::new(named) == path).map(|_| path)
    }

    /// Whether that folder is there and nothing is in it.
    pub(crate) fn has_empty_workspace(&self, conversation: &ConversationId) -> bool {
        let entries = self.workspace_path(conversation).read_dir();
        entries.is_ok_and(|mut entries| entries.next().is_none())
    }

    /// Removes that folder if nothing is in it: whoever goes on makes it again. Only for whoever holds the conversation's
    /// lock while it has no sandbox, which could have the folder mounted.
    pub(crate) fn remove_empty_workspace(&self, conversation: &ConversationId) {
        // The kernel refuses to remove one that is not empty.
        let _ = std::fs::remove_dir(self.workspace_path(conversation));
    }

    /// Removes that folder with all that is in it. For the holder of the conversation's lock, once it has no sandbox.
    pub(crate) fn remove_workspace(&self, conversation: &ConversationId) -> anyhow::Result<()> {
        let path = self.workspace_path(conversation);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove the folder {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn workspace_path(&self, conversation: &ConversationId) -> PathBuf {
        self.0.join("workspaces").join(conversation.as_str())
    }

    /// Makes this process the one that writes a conversation, until the lock is dropped.
    pub(crate) fn lock(&self, conversation: &ConversationId) -> anyhow::Result<Lock> {
        match self.try_lock_conversation(conversation)? {
            Some(lock) => Ok(lock),
            None => anyhow::bail!("conversation {conversation} is being run by another process"),
        }
    }

    /// The same. `None` if another process holds the lock.
    pub(super) fn try_lock_conversation(
        &self,
        conversation: &ConversationId,
    ) -> anyhow::Result<Option<Lock>> {
        Self::try_lock(self.lock_path(conversation))
    }

    /// Notes that this process works in a folder of the host, until the lock is dropped. `None` if another one does.
    pub(crate) fn lock_folder(&self, folder: &Path) -> anyhow::Result<Option<Lock>> {
        let path = folder.canonicalize().with_context(|| format!("opening {}", folder.display()))?;
        let name = ring::digest::digest(&ring::digest::SHA256, path.as_os_str().as_encoded_bytes());
        let name: String = name.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self::try_lock(self.0.join("folder-locks").join(name))
    }

    fn try_lock(path: PathBuf) -> anyhow::Result<Option<Lock>> {
        path.parent().map(private_folder).transpose()?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        for _ in 0..LOCK_ATTEMPTS {
            let file = options.open(&path).with_context(|| format!("opening {}", path.display()))?;
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => return Ok(Some(Lock { _file: file, path })),
                // Whoever held it has removed it meanwhile.
                Ok(()) => {}
                // A sweep that looks whether it is held holds it for a moment.
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("locking {}", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Whether a process runs this conversation now.
    pub(crate) fn is_locked(&self, conversation: &ConversationId) -> bool {
        let path = self.lock_path(conversation);
        for _ in 0..LOCK_ATTEMPTS {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return false,
                // One of another user says nothing but that it is there.
                Err(_) => return true,
            };
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => return false,
                // Another may be in its place, and held.
                Ok(()) => {}
                Err(error) => return matches!(error, TryLockError::WouldBlock),
            }
        }
        // Many begin and end with it: it is used.
        true
    }

    fn lock_path(&self, conversation: &ConversationId) -> PathBuf {
        self.0.join("locks").join(conversation.as_str())
    }

    /// The folder itself.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What sandbox keys are derived from; made at the first start.
    pub(super) fn secret(&self) -> anyhow::Result<HostSecret> {
        let path = self.0.join("secret");
        let doing = || format!("reading the host's secret in {}", path.display());
        if !path.exists() {
            self.make_secret(&path).with_context(doing)?;
        }
        let mut bytes = [0; 32];
        File::open(&path).and_then(|mut file| file.read_exact(&mut bytes)).with_context(doing)?;
        Ok(HostSecret::new(bytes))
    }

    /// Whole or not at all, and never over one that another process made meanwhile.
    fn make_secret(&self, path: &Path) -> anyhow::Result<()> {
        let mut bytes = [0; 32];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut bytes)
            .map_err(|_| anyhow::anyhow!("no random bytes"))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error.into()),
        }
    }
}

/// The right to write a conversation, or a note that a folder is worked in. Dropping it gives it back, and nothing stays of it.
pub(crate) struct Lock {
    _file: File,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held: afterwards it could be another's. One that stays is an empty file.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether an open file is the one of this path: what was opened may have been removed before it was locked, and then it
/// keeps nobody out.
fn is_still_at(file: &File, path: &Path) -> bool {
    let identity = |about: std::fs::Metadata| (about.dev(), about.ino());
    let opened = file.metadata().map(identity);
    matches!((opened, path.metadata().map(identity)), (Ok(opened), Ok(there)) if opened == there)
}

fn private_folder(path: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("making the folder {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_at_a_time_holds_a_lock_that_goes_with_its_holder() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(folder.path()).unwrap();
        let id: ConversationId = "one".parse().unwrap();
        let (is_held, had) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        // Another open file is another process to the kernel.
                        let Ok(lock) = state_dir.lock(&id) else { continue };
                        assert!(!is_held.swap(true, Ordering::SeqCst), "two have it");
                        assert!(state_dir.is_locked(&id));
                        had.fetch_add(1, Ordering::SeqCst);
                        is_held.store(false, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(had.into_inner() > 0);
        assert!(!state_dir.is_locked(&id));
        assert_eq!(folder.path().join("locks").read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_folder_is_locked_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(&folder.path().join("state")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let lock = state_dir.lock_folder(folder.path()).unwrap();
        assert!(lock.is_some());
        assert!(state_dir.lock_folder(&folder.path().join("link")).unwrap().is_none());
        assert!(state_dir.lock_folder(&folder.path().join("state")).unwrap().is_some());
        drop(lock);
        assert!(state_dir.lock_folder(folder.path()).unwrap().is_some());
    }
}
