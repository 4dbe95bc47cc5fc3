//! The folder that keeps everything between runs.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use engine::events::EventStore;
use protocol::{ConversationId, EventId};
use sandbox::HostSecret;
use storage::{Durability, SqliteStore};

use crate::exit::UsageError;

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

    /// Opens the store of event logs.
    pub(crate) async fn store(&self, durability: Durability) -> anyhow::Result<Arc<SqliteStore>> {
        let path = self.0.join("glovebox.db");
        let store = SqliteStore::open(&path, durability).await;
        store.map(Arc::new).with_context(|| format!("opening the event logs in {}", path.display()))
    }

    /// Makes the folder that a conversation works in when none is named.
    pub(crate) fn workspace(&self, conversation: &ConversationId) -> anyhow::Result<PathBuf> {
        let path = self.0.join("workspaces").join(conversation.as_str());
        private_folder(&path)?;
        Ok(path)
    }

    /// Makes this process the one that writes a conversation, until the lock is dropped.
    pub(crate) fn lock(&self, conversation: &ConversationId) -> anyhow::Result<Lock> {
        private_folder(&self.0.join("locks"))?;
        let path = self.lock_path(conversation);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).with_context(|| format!("opening {}", path.display()))?;
        for attempt in 1.. {
            match file.try_lock() {
                Ok(()) => break,
                // A sweep that looks whether it is held holds it for a moment.
                Err(TryLockError::WouldBlock) if attempt < LOCK_ATTEMPTS => std::thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => {
                    anyhow::bail!("conversation {conversation} is being run by another process")
                }
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("locking {}", path.display()));
                }
            }
        }
        Ok(Lock { _file: file, leaves: None })
    }

    /// The same for what nobody ever goes on with: nothing stays of the lock.
    pub(crate) fn lock_for_once(&self, conversation: &ConversationId) -> anyhow::Result<Lock> {
        let mut lock = self.lock(conversation)?;
        lock.leaves = Some(self.lock_path(conversation));
        Ok(lock)
    }

    /// Whether a process runs this conversation now.
    pub(crate) fn is_locked(&self, conversation: &ConversationId) -> bool {
        let file = File::open(self.lock_path(conversation));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    fn lock_path(&self, conversation: &ConversationId) -> PathBuf {
        self.0.join("locks").join(conversation.as_str())
    }

    /// The same for a conversation that there must be: one that there is not leaves no lock behind.
    pub(crate) async fn lock_existing(
        &self,
        store: &dyn EventStore,
        conversation: &ConversationId,
    ) -> anyhow::Result<Lock> {
        if store.read(conversation, EventId::FIRST, 1).await?.is_empty() {
            return Err(UsageError(format!("there is no conversation {conversation}")).into());
        }
        self.lock(conversation)
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
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error.into()),
        }
    }
}

/// The right to write a conversation. Dropping it gives it back.
pub(crate) struct Lock {
    _file: File,
    /// The lock's file, if it is to go with it.
    leaves: Option<PathBuf>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the file is closed. One that stays is an empty file.
        let _ = self.leaves.as_ref().map(std::fs::remove_file);
    }
}

fn private_folder(path: &Path) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("making the folder {}", path.display()))
}
