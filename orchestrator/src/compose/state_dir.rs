//! The state folder, which holds everything that outlives a run.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use conversations::{
    ConversationLock, ConversationLocks, ConversationsError, HostError, LockGuard,
};
use protocol::ConversationId;
use sandbox_client::HostSecret;
use sandbox_local::LocalProbes;
use serde::{Deserialize, Serialize};
use storage::{SqliteOptions, SqliteStore};
use tokio_util::sync::CancellationToken;

use super::host_error;
use super::unusable_files::{as_usage_error, cannot_open};
use crate::exit::UsageError;

/// File that exists if a container engine was used.
const ENGINE_FILE: &str = "engine";

/// File that a server locks, with its [`ServedStore`].
const SERVED_STORE_FILE: &str = "served-store";

/// The store of the server of a folder, or of its last one, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServedStore {
    /// Whether the server runs.
    #[serde(skip)]
    pub(crate) is_running: bool,
    /// Name of the store for people.
    pub(crate) name: String,
    /// The configuration file that names it. `None` if the server has it from elsewhere.
    pub(crate) config_file: Option<PathBuf>,
}

const LOCK_ATTEMPTS: u32 = 5;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// The state folder. Only its owner can read it.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    path: PathBuf,
    local_probes: Arc<LocalProbes>,
}

impl StateDir {
    /// Name of the file of event logs.
    pub(super) const EVENTS_FILE: &str = "glovebox.db";

    /// Opens the folder, and creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        create_private_folder(path).map_err(as_usage_error)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot open {}", path.display()))?;
        make_private(&path);
        Ok(Self {
            path,
            local_probes: Arc::default(),
        })
    }

    /// Fails if no file can be created in the folder.
    pub(crate) fn check_writable(&self) -> anyhow::Result<()> {
        let created = tempfile::tempfile_in(&self.path).map(drop);
        created
            .with_context(|| format!("cannot write to the folder {}", self.path.display()))
            .map_err(as_usage_error)
    }

    /// Path of the file of event logs, which may not exist.
    pub(crate) fn events_file(&self) -> PathBuf {
        self.path.join(Self::EVENTS_FILE)
    }

    /// Opens the store of event logs to read it, even if its file cannot be written.
    pub(crate) async fn store_to_read(
        &self,
        options: SqliteOptions,
    ) -> anyhow::Result<Arc<SqliteStore>> {
        let path = self.events_file();
        let store = SqliteStore::open_to_read(&path, options).await;
        store
            .map(Arc::new)
            .map_err(|error| cannot_open("the event logs", error))
    }

    /// Opens the store of event logs.
    pub(crate) async fn store(&self, options: SqliteOptions) -> anyhow::Result<Arc<SqliteStore>> {
        let path = self.events_file();
        let store = SqliteStore::open(&path, options).await;
        store
            .map(Arc::new)
            .map_err(|error| cannot_open("the event logs", error))
    }

    /// Creates the default workspace of a conversation.
    pub(crate) fn workspace(&self, conversation: &ConversationId) -> anyhow::Result<PathBuf> {
        let path = self.workspace_path(conversation);
        create_private_folder(&path)?;
        Ok(path)
    }

    /// The default workspace, if the conversation's log names it; or that of another state folder
    /// from which the store was copied, and which does not exist here. It may not exist, because an
    /// empty one is removed, and workspaces are not copied.
    pub(crate) fn workspace_in_log(
        &self,
        conversation: &ConversationId,
        named: Option<&str>,
    ) -> Option<PathBuf> {
        let (path, named) = (self.workspace_path(conversation), Path::new(named?));
        let is_copied = || named.ends_with(Self::workspace_below(conversation)) && !named.exists();
        (named == path || is_copied()).then_some(path)
    }

    /// Path of the default workspace, which may not exist.
    pub(super) fn workspace_path(&self, conversation: &ConversationId) -> PathBuf {
        self.path.join(Self::workspace_below(conversation))
    }

    /// Path of the default workspace in a state folder.
    fn workspace_below(conversation: &ConversationId) -> PathBuf {
        Path::new("workspaces").join(conversation.as_str())
    }

    /// Acquires the right to write a conversation. Fails if another process holds it.
    pub(crate) fn lock(&self, conversation: &ConversationId) -> anyhow::Result<Lock> {
        match Self::try_lock(self.lock_path(conversation))? {
            Some(lock) => Ok(lock),
            None => Err(ConversationsError::Locked(conversation.clone()).into()),
        }
    }

    fn try_lock(path: PathBuf) -> anyhow::Result<Option<Lock>> {
        path.parent().map(create_private_folder).transpose()?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        for _ in 0..LOCK_ATTEMPTS {
            let file = options
                .open(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            match file.try_lock() {
                Ok(()) if is_still_at(&file, &path) => {
                    return Ok(Some(Lock {
                        _file: file,
                        path,
                        stays: false,
                    }));
                }
                // Its holder has removed the file between open and lock.
                Ok(()) => {}
                // A sweep holds the lock briefly while it probes it.
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_RETRY_INTERVAL),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
        Ok(None)
    }

    fn lock_path(&self, conversation: &ConversationId) -> PathBuf {
        self.path.join("locks").join(conversation.as_str())
    }

    /// The folder itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what this process knows of the machine's local sandboxes.
    pub(super) fn local_probes(&self) -> Arc<LocalProbes> {
        Arc::clone(&self.local_probes)
    }

    /// Returns the secret that sandbox keys are derived from. Created at the first start.
    pub(super) fn secret(&self) -> anyhow::Result<HostSecret> {
        let path = self.path.join("secret");
        let context = || format!("cannot read the host's secret in {}", path.display());
        if !path.exists() {
            self.create_secret(&path)
                .with_context(context)
                .map_err(as_usage_error)?;
        }
        let mut bytes = [0; 32];
        let read = File::open(&path).and_then(|mut file| file.read_exact(&mut bytes));
        match read {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(UsageError(format!(
                "{}: it has less than 32 bytes; restore it from a backup, or remove it and with it the access to all \
                 sandboxes",
                context()
            ))
            .into()),
            read => read
                .with_context(context)
                .map(|()| HostSecret::new(bytes))
                .map_err(as_usage_error),
        }
    }

    /// Writes the secret atomically, and never replaces that of a concurrent process.
    fn create_secret(&self, path: &Path) -> anyhow::Result<()> {
        let mut bytes = [0; 32];
        let random = ring::rand::SystemRandom::new();
        ring::rand::SecureRandom::fill(&random, &mut bytes)
            .map_err(|_| anyhow::anyhow!("no random bytes"))?;
        let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error.into()),
        }
    }
}

#[async_trait]
impl ConversationLocks for StateDir {
    async fn lock(
        &self,
        conversation: &ConversationId,
    ) -> Result<Option<ConversationLock>, HostError> {
        let guard = to_guard(Self::try_lock(self.lock_path(conversation)))?;
        // Held until it is dropped: it cannot be lost.
        Ok(guard.map(|guard| ConversationLock {
            guard,
            lost: CancellationToken::new(),
        }))
    }

    fn lock_folder(&self, folder: &Path) -> Result<Option<LockGuard>, HostError> {
        let path = folder
            .canonicalize()
            .with_context(|| format!("cannot open {}", folder.display()));
        let path = path.map_err(host_error)?;
        let name = ring::digest::digest(&ring::digest::SHA256, path.as_os_str().as_encoded_bytes());
        to_guard(Self::try_lock(
            self.path
                .join("folder-locks")
                .join(hex::encode(name.as_ref())),
        ))
    }

    async fn locked(
        &self,
        conversations: &[ConversationId],
    ) -> Result<BTreeSet<ConversationId>, HostError> {
        Ok(conversations
            .iter()
            .filter(|id| self.is_locked(id))
            .cloned()
            .collect())
    }
}

impl StateDir {
    /// Whether a process of this machine, perhaps this one, holds a conversation's lock.
    fn is_locked(&self, conversation: &ConversationId) -> bool {
        Self::is_held(&self.lock_path(conversation))
    }

    /// Records which store a server of this folder uses. It runs until the lock is dropped. `None`
    /// if there is another server.
    pub(crate) fn mark_served(&self, store: &ServedStore) -> anyhow::Result<Option<Lock>> {
        let lock = Self::try_lock(self.path.join(SERVED_STORE_FILE))?;
        let Some(mut lock) = lock else {
            return Ok(None);
        };
        lock.stays = true;
        std::fs::write(&lock.path, serde_json::to_vec(store)?)
            .with_context(|| format!("cannot write {}", lock.path.display()))?;
        Ok(Some(lock))
    }

    /// Records that a container engine is used with this folder.
    pub(crate) fn record_engine(&self) -> anyhow::Result<()> {
        if self.had_engine() {
            return Ok(());
        }
        let file = self.path.join(ENGINE_FILE);
        std::fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))
    }

    /// Whether a container engine was used with this folder, and may have sandboxes.
    pub(crate) fn had_engine(&self) -> bool {
        self.path.join(ENGINE_FILE).exists()
    }

    /// The store of the server of this folder, or of its last one. `None` if there was none.
    pub(crate) fn served_store(&self) -> Option<ServedStore> {
        let path = self.path.join(SERVED_STORE_FILE);
        // Empty if its server could not write it.
        let text = std::fs::read_to_string(&path).ok()?;
        let text = Some(text).filter(|text| !text.is_empty())?;
        // Earlier versions wrote the name only.
        let store = serde_json::from_str(&text).unwrap_or(ServedStore {
            is_running: false,
            name: text,
            config_file: None,
        });
        Some(ServedStore {
            is_running: Self::is_held(&path),
            ..store
        })
    }

    /// Whether a process holds the lock of this file.
    fn is_held(path: &Path) -> bool {
        for _ in 0..LOCK_ATTEMPTS {
            let file = match File::open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return false,
                // The file of another user cannot be probed, so it counts as locked.
                Err(_) => return true,
            };
            // Shared, so that it does not look held to another process that asks.
            match file.try_lock_shared() {
                Ok(()) if is_still_at(&file, path) => return false,
                // The path may name a newer file, which is locked.
                Ok(()) => {}
                Err(error) => return matches!(error, TryLockError::WouldBlock),
            }
        }
        // Processes keep acquiring and releasing it.
        true
    }
}

fn to_guard(lock: anyhow::Result<Option<Lock>>) -> Result<Option<LockGuard>, HostError> {
    lock.map(|lock| lock.map(|lock| Box::new(lock) as LockGuard))
        .map_err(host_error)
}

/// Exclusive lock of a conversation or a folder. Dropping it releases it, and removes its file
/// unless that stays.
pub(crate) struct Lock {
    _file: File,
    path: PathBuf,
    stays: bool,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.stays {
            // Removed while locked, because afterwards the file could be another process's. On
            // failure an empty file stays.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether an open file is still the one at this path. A file that was removed before it was locked
/// excludes no other process.
fn is_still_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let opened = file.metadata().map(identity);
    matches!((opened, path.metadata().map(identity)), (Ok(opened), Ok(current)) if opened == current)
}

fn create_private_folder(path: &Path) -> anyhow::Result<()> {
    let created = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    created.with_context(|| format!("cannot create the folder {}", path.display()))
}

/// Removes the rights of other users to a state folder that the user has created. Leaves a folder
/// with other content, such as `/tmp`, as it is. A failure changes nothing: the folder may be
/// another user's, or read-only.
fn make_private(path: &Path) {
    let Ok(metadata) = path.metadata() else {
        return;
    };
    let (mode, is_sticky) = (metadata.mode() & 0o777, metadata.mode() & 0o1000 != 0);
    let has = |name: &str| path.join(name).exists();
    let is_empty = || {
        path.read_dir()
            .is_ok_and(|mut entries| entries.next().is_none())
    };
    let is_own =
        || path.ends_with(".glovebox") || has("secret") || has(StateDir::EVENTS_FILE) || is_empty();
    if mode & 0o077 != 0 && !is_sticky && is_own() {
        let _ = std::fs::set_permissions(path, Permissions::from_mode(mode & 0o700));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn lock_has_one_holder_and_is_removed_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(folder.path()).unwrap();
        let id: ConversationId = "one".parse().unwrap();
        let (is_held, lock_count) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        // Another open file is another process to the kernel.
                        let Ok(lock) = state_dir.lock(&id) else {
                            continue;
                        };
                        assert!(!is_held.swap(true, Ordering::SeqCst), "two holders");
                        assert!(state_dir.is_locked(&id));
                        lock_count.fetch_add(1, Ordering::SeqCst);
                        is_held.store(false, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(lock_count.into_inner() > 0);
        assert!(!state_dir.is_locked(&id));
        assert_eq!(folder.path().join("locks").read_dir().unwrap().count(), 0);
    }

    #[test]
    fn other_users_lose_their_rights_to_a_state_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mode_after = |name: &str, file: Option<&str>, mode| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            if let Some(file) = file {
                std::fs::write(path.join(file), "").unwrap();
            }
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            StateDir::open(&path).unwrap();
            path.metadata().unwrap().mode() & 0o7777
        };
        assert_eq!(mode_after(".glovebox", Some("config.toml"), 0o755), 0o700);
        assert_eq!(mode_after("state", Some("glovebox.db"), 0o770), 0o700);
        assert_eq!(mode_after("empty", None, 0o755), 0o700);
        assert_eq!(mode_after("project", Some("main.rs"), 0o755), 0o755);
        assert_eq!(mode_after("shared", None, 0o1777), 0o1777);
    }

    #[test]
    fn served_store_is_known_while_and_after_the_server_runs() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(folder.path()).unwrap();
        assert_eq!(state_dir.served_store(), None);
        let store = |name: &str| ServedStore {
            is_running: true,
            name: name.to_owned(),
            config_file: Some("/etc/g.toml".into()),
        };
        let server = state_dir.mark_served(&store("postgres://db/a")).unwrap();
        assert_eq!(state_dir.served_store(), Some(store("postgres://db/a")));
        assert!(state_dir.mark_served(&store("another")).unwrap().is_none());
        std::fs::write(folder.path().join(SERVED_STORE_FILE), "postgres://db/b").unwrap();
        let earlier = ServedStore {
            is_running: true,
            name: "postgres://db/b".to_owned(),
            config_file: None,
        };
        assert_eq!(
            state_dir.served_store(),
            Some(earlier),
            "as an earlier version writes it"
        );
        drop(server);
        assert!(!state_dir.served_store().unwrap().is_running);
        let server = state_dir.mark_served(&store("postgres://db/c")).unwrap();
        assert!(server.is_some());
        assert_eq!(state_dir.served_store(), Some(store("postgres://db/c")));
    }

    #[test]
    fn workspace_of_a_copied_conversation_is_its_own_one() {
        let [folder, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let [here, there] = [&folder, &other].map(|folder| StateDir::open(folder.path()).unwrap());
        let id: ConversationId = "one".parse().unwrap();
        let found = |path: PathBuf| here.workspace_in_log(&id, path.to_str());
        let own = here.workspace_path(&id);
        assert_eq!(found(own.clone()), Some(own.clone()));
        assert_eq!(found(there.workspace_path(&id)), Some(own));
        there.workspace(&id).unwrap();
        assert_eq!(found(there.workspace_path(&id)), None, "it exists here");
        for named in ["/home/user/one", "/home/user/workspaces/two", "workspaces"] {
            assert_eq!(found(PathBuf::from(named)), None, "{named}");
        }
        assert_eq!(here.workspace_in_log(&id, None), None);
    }

    #[test]
    fn folder_is_locked_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = StateDir::open(&folder.path().join("state")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let lock = state_dir.lock_folder(folder.path()).unwrap();
        assert!(lock.is_some());
        assert!(
            state_dir
                .lock_folder(&folder.path().join("link"))
                .unwrap()
                .is_none()
        );
        assert!(
            state_dir
                .lock_folder(&folder.path().join("state"))
                .unwrap()
                .is_some()
        );
        drop(lock);
        assert!(state_dir.lock_folder(folder.path()).unwrap().is_some());
    }
}
