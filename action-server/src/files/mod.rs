//! Files of the sandbox, one operation per module. All functions block and must run in blocking
//! threads.
//!
//! Actions read, view, write and edit files as a whole, with at most [`MAX_FILE_BYTES`] in memory.
//! The routes of `/v1/files` transfer files of any length in parts, list, move, search, pack and
//! watch them. Contents are bytes: an edit does not change other parts of a file, even if they are
//! not UTF-8. Pipes and devices are never opened for reading. The system denies what the server's
//! user may not access. With a [`Root`], everything outside of it is denied too. The root protects
//! a host that exposes this interface to others; it does not confine the agent, which has a shell.

mod beneath;
mod change_mode;
mod diff;
mod download;
mod edit;
mod encoding;
mod error;
mod history;
mod lines;
mod list;
mod make_folder;
mod media;
mod open;
mod path;
mod range;
mod read;
mod remove;
mod rename;
mod replace;
mod resolved_path;
mod root;
mod search;
mod status;
mod stop;
mod temporary;
mod tree;
mod upload;
mod view;
mod watch;
mod write;

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Observation;
use protocol::action::{EditAction, FileImplementation, ReadAction, WriteAction};

use crate::environment::Environment;
pub(crate) use change_mode::change_mode;
pub(crate) use download::{OpenFile, PART_BYTES, UnreadFile};
pub(crate) use error::FileError;
use history::History;
pub(crate) use list::list;
pub(crate) use make_folder::make_folder;
pub(crate) use range::{RequestedRange, requested_range};
pub(crate) use remove::remove;
pub(crate) use rename::rename;
use resolved_path::ResolvedPath;
use root::Root;
pub(crate) use search::{MAX_TIME, glob, grep};
pub(crate) use status::status;
pub(crate) use stop::StopSignal;
pub(crate) use tree::{ArchiveLimits, BodyPart, open_folder, pack, unpack};
pub(crate) use upload::Upload;
pub(crate) use watch::{KernelEvents, WatchSource, Watcher};

/// Maximum size of a file in memory. Longer than any source file. Twice the size, as with JSON
/// escapes, fits in a frame, unless the file is full of control characters.
const MAX_FILE_BYTES: usize = 10 << 20;

/// Number of locks. Two files rarely share one.
const LOCK_SLOTS: usize = 64;

/// State of file operations: the root, the undo history, and locks against concurrent changes of
/// one file.
#[derive(Debug)]
pub(crate) struct Files {
    root: Option<Arc<Root>>,
    /// Contains the home.
    environment: Environment,
    history: Mutex<History>,
    /// Locked while a file is read, changed and written. Only blocking threads lock them.
    locks: [Mutex<()>; LOCK_SLOTS],
    slots: RandomState,
}

impl Files {
    /// Confines access to `root` if there is one. It must contain `working_dir`, which relative
    /// paths refer to at first.
    pub(crate) fn confined(
        root: Option<&Path>,
        working_dir: &Path,
        environment: Environment,
    ) -> anyhow::Result<Self> {
        let root = root
            .map(|root| Root::around(working_dir, root))
            .transpose()?;
        Ok(Self::new(root.map(Arc::new), environment))
    }

    /// Does not confine access.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn unconfined() -> Self {
        Self::new(None, Environment::new(Vec::new()))
    }

    fn new(root: Option<Arc<Root>>, environment: Environment) -> Self {
        Self {
            root,
            environment,
            history: Mutex::default(),
            locks: [const { Mutex::new(()) }; LOCK_SLOTS],
            slots: RandomState::new(),
        }
    }

    /// Makes the path of a request absolute. `~` is the home of the shell, relative paths refer to
    /// `working_dir`.
    pub(crate) fn absolute(&self, path: &str, working_dir: &Path) -> PathBuf {
        path::resolve(path, working_dir, &self.environment.home())
    }

    /// Returns the text, a data URL, or the editor's numbered view of a file.
    pub(crate) fn read(&self, action: &ReadAction, working_dir: &Path) -> Observation {
        let path = self.absolute(&action.path, working_dir);
        match action.impl_source {
            FileImplementation::OhAci => view::observe(self, &path, action.view_range.as_deref()),
            FileImplementation::Default | FileImplementation::LlmBasedEdit => {
                read::observe(self, &path, action, working_dir)
            }
        }
    }

    /// Writes a whole file, or replaces some of its lines.
    pub(crate) fn write(&self, action: &WriteAction, working_dir: &Path) -> Observation {
        write::observe(
            self,
            &self.absolute(&action.path, working_dir),
            action,
            working_dir,
        )
    }

    /// Performs a command of the editor.
    pub(crate) fn edit(&self, action: &EditAction, working_dir: &Path) -> Observation {
        edit::observe(self, &self.absolute(&action.path, working_dir), action)
    }

    /// Resolves a path, following links.
    fn resolve(&self, path: &Path) -> Result<ResolvedPath, FileError> {
        match &self.root {
            None => Ok(ResolvedPath::unconfined(path.to_owned())),
            Some(root) => root.resolve(path),
        }
    }

    /// Resolves a path to a name in a folder. A link is not followed.
    fn resolve_name(&self, path: &Path) -> Result<ResolvedPath, FileError> {
        match &self.root {
            None => Ok(ResolvedPath::unconfined(path.to_owned())),
            Some(root) => root.resolve_name(path),
        }
    }

    /// Resolves the path of a file to write, following links. The file need not exist.
    fn resolve_target(&self, path: &Path) -> Result<ResolvedPath, FileError> {
        match &self.root {
            None => Ok(ResolvedPath::unconfined(path::follow(path))),
            Some(root) => root.resolve_target(path),
        }
    }

    /// Returns whether the path is a folder, following links.
    fn is_folder(&self, path: &Path) -> bool {
        self.resolve(path)
            .is_ok_and(|found| found.metadata().is_ok_and(|metadata| metadata.is_dir()))
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a file against concurrent changes.
    fn lock(&self, target: &ResolvedPath) -> MutexGuard<'_, ()> {
        let slot = self.slots.hash_one(target.key()) % LOCK_SLOTS as u64;
        let slot = usize::try_from(slot).unwrap_or_default();
        self.locks[slot]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
