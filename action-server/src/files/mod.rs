//! Files of the sandbox, one verb a file. Blocking; called where blocking is allowed.
//!
//! For actions they are read, viewed, written and edited as a whole: never more of a file than [`MAX_FILE_BYTES`] is
//! held. For the routes of `/v1/files` they are sent in parts, of any length, listed, moved, looked through, packed
//! and watched. Works on bytes: what an edit does not touch stays as it is, also when it is no UTF-8. Never follows a
//! request into a pipe or a device. What the server's user may not touch, the system refuses; with a [`Root`], also what
//! is not beneath it. That is for the host's sake, which may hand this interface to others: the agent has a shell.

mod beneath;
mod change_mode;
mod diff;
mod download;
mod edit;
mod error;
mod history;
mod lines;
mod list;
mod make_folder;
mod media;
mod open;
mod path;
mod place;
mod range;
mod read;
mod remove;
mod rename;
mod replace;
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
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use protocol::Observation;
use protocol::action::{EditAction, FileImplementation, ReadAction, WriteAction};

pub(crate) use change_mode::change_mode;
pub(crate) use download::{Opened, PART_BYTES, Rest};
pub(crate) use error::FileError;
use history::History;
pub(crate) use list::list;
pub(crate) use make_folder::make_folder;
pub(crate) use path::resolve;
use place::Place;
pub(crate) use range::{Asked, asked};
pub(crate) use remove::remove;
pub(crate) use rename::rename;
use root::Root;
pub(crate) use search::{MAX_TIME, glob, grep};
pub(crate) use status::status;
pub(crate) use stop::Stop;
pub(crate) use tree::{Arrived, Limits, check, pack, unpack};
pub(crate) use upload::Upload;
pub(crate) use watch::{Happened, Source, Watcher};

/// The most of one file that is held: above any source file, and twice it with JSON's escapes fits in a frame unless
/// it is full of control characters.
const MAX_FILE_BYTES: usize = 10 << 20;

/// Changes to files in the same slot wait for each other; two files rarely share one.
const LOCK_SLOTS: usize = 64;

/// What file actions share: the undo history, and locks that keep two changes of one file apart.
#[derive(Debug)]
pub(crate) struct Files {
    root: Option<Arc<Root>>,
    history: Mutex<History>,
    /// Held while a file is read, changed and written again. Only blocking threads take them.
    changing: [Mutex<()>; LOCK_SLOTS],
    slots: RandomState,
}

impl Files {
    /// Beneath `root`, if one is given; `working_dir`, where relative paths begin at first, has to be beneath it.
    pub(crate) fn confined(root: Option<&Path>, working_dir: &Path) -> anyhow::Result<Self> {
        let root = root.map(|root| Root::around(working_dir, root)).transpose()?;
        Ok(Self::beneath(root.map(Arc::new)))
    }

    /// Wherever the system lets us.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn anywhere() -> Self {
        Self::beneath(None)
    }

    fn beneath(root: Option<Arc<Root>>) -> Self {
        Self {
            root,
            history: Mutex::default(),
            changing: [const { Mutex::new(()) }; LOCK_SLOTS],
            slots: RandomState::new(),
        }
    }

    /// The plain text, a data URL, or the editor's numbered view.
    pub(crate) fn read(&self, action: &ReadAction, working_dir: &Path) -> Observation {
        let path = path::resolve(&action.path, working_dir);
        match action.impl_source {
            FileImplementation::OhAci => view::observe(self, &path, action.view_range.as_deref()),
            FileImplementation::Default | FileImplementation::LlmBasedEdit => {
                read::observe(self, &path, action, working_dir)
            }
        }
    }

    /// The whole file, or a slice of its lines.
    pub(crate) fn write(&self, action: &WriteAction, working_dir: &Path) -> Observation {
        write::observe(self, &path::resolve(&action.path, working_dir), action, working_dir)
    }

    /// The editor's commands.
    pub(crate) fn edit(&self, action: &EditAction, working_dir: &Path) -> Observation {
        edit::observe(self, &path::resolve(&action.path, working_dir), action)
    }

    /// What is at `path`, behind links.
    fn found(&self, path: &Path) -> Result<Place, FileError> {
        match &self.root {
            None => Ok(Place::anywhere(path.to_owned())),
            Some(root) => root.found(path),
        }
    }

    /// The name at `path`; a link there is the link itself.
    fn named(&self, path: &Path) -> Result<Place, FileError> {
        match &self.root {
            None => Ok(Place::anywhere(path.to_owned())),
            Some(root) => root.named(path),
        }
    }

    /// The file that is meant to be written, behind links, there or not.
    fn target(&self, path: &Path) -> Result<Place, FileError> {
        match &self.root {
            None => Ok(Place::anywhere(path::follow(path))),
            Some(root) => root.target(path),
        }
    }

    /// Whether there is a folder at `path`, behind links.
    fn is_folder(&self, path: &Path) -> bool {
        self.found(path).is_ok_and(|found| found.metadata().is_ok_and(|metadata| metadata.is_dir()))
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from changing `target` meanwhile.
    fn change(&self, target: &Place) -> MutexGuard<'_, ()> {
        let slot = self.slots.hash_one(target.key()) % LOCK_SLOTS as u64;
        let slot = usize::try_from(slot).unwrap_or_default();
        self.changing[slot].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
