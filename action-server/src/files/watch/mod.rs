//! Tells what changes in a folder, from the kernel's inotify. Each step is short and blocks on nothing but the disk; who
//! waits for the next event does so elsewhere. Something that appears while its folder is just being added may be told
//! twice, but nothing is left out without [`WatchEvent::Overflow`].

mod folders;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent};
use protocol::sandbox_api::WatchEvent;

use super::Files;
use super::error::FileError;
use super::place::Place;
use folders::Folders;

/// Folders of one watch; the kernel lets a user have a few times as many.
const MAX_FOLDERS: usize = 8192;

/// Told in one step, about a MB of JSON.
const MAX_EVENTS: usize = 10_000;

/// Reads for one step, of some 100 events each.
const MAX_READS: usize = 64;

/// A watched folder or file.
#[derive(Debug)]
pub(crate) struct Watcher {
    inotify: Arc<Inotify>,
    root: Place,
    is_recursive: bool,
    folders: Folders,
    /// What has just lost its name, until it has another or has gone.
    leaving: Option<Leaving>,
    events: Vec<WatchEvent>,
}

#[derive(Debug)]
struct Leaving {
    below: PathBuf,
    cookie: u32,
}

/// Where the kernel's events are read.
#[derive(Debug)]
pub(crate) struct Source(Arc<Inotify>);

/// What the kernel has told.
#[derive(Debug, Default)]
pub(crate) struct Happened(Vec<InotifyEvent>);

/// What a step has found.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) events: Vec<WatchEvent>,
    /// Something has left, and where it went may be told in a moment.
    pub(crate) is_leaving: bool,
    /// There is nothing left to be watched.
    pub(crate) is_over: bool,
}

impl Watcher {
    /// Changes after this are told.
    pub(crate) fn begin(files: &Files, path: &Path, is_recursive: bool) -> Result<Self, FileError> {
        let failed = |errno: Errno| match errno {
            Errno::EMFILE | Errno::ENOSPC => FileError::Unfit {
                path: path.to_owned(),
                problem: "cannot be watched: the system's limit on inotify watches is met",
            },
            errno => FileError::io("watching", path, errno.into()),
        };
        let root = files.found(path)?;
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(failed)?;
        let watch = inotify.add_watch(root.path(), changes()).map_err(failed)?;
        let inotify = Arc::new(inotify);
        let mut folders = Folders::default();
        folders.insert(watch, PathBuf::new());
        let events = Vec::new();
        let mut watcher = Self { inotify, root, is_recursive, folders, leaving: None, events };
        watcher.add_below(Path::new(""), false);
        Ok(watcher)
    }

    pub(crate) fn source(&self) -> Source {
        Source(Arc::clone(&self.inotify))
    }

    /// What the events mean. With `is_late`, what was leaving has gone.
    pub(crate) fn step(&mut self, arrived: Happened, is_late: bool) -> Step {
        arrived.0.into_iter().for_each(|event| self.take(event));
        if is_late {
            self.has_left();
        }
        Step {
            events: std::mem::take(&mut self.events),
            is_leaving: self.leaving.is_some(),
            is_over: self.folders.is_empty(),
        }
    }

    fn take(&mut self, event: InotifyEvent) {
        let is = |flag| event.mask.contains(flag);
        if is(Flags::IN_Q_OVERFLOW) {
            self.tell(WatchEvent::Overflow);
            return self.add_below(Path::new(""), false);
        }
        let Some(folder) = self.folders.get(event.wd).cloned() else { return };
        if is(Flags::IN_IGNORED) {
            return self.folders.remove(event.wd);
        }
        let Some(name) = event.name.as_ref() else { return self.take_own(&folder, event.mask) };
        let (below, is_folder) = (folder.join(name), is(Flags::IN_ISDIR));
        match self.leaving.take() {
            Some(leaving) if is(Flags::IN_MOVED_TO) && leaving.cookie == event.cookie => {
                self.folders.rename(&leaving.below, &below);
                return self.tell(WatchEvent::Moved { from: shown(&leaving.below), path: shown(&below) });
            }
            leaving => {
                self.leaving = leaving;
                self.has_left();
            }
        }
        let path = shown(&below);
        if is(Flags::IN_MOVED_FROM) {
            self.leaving = Some(Leaving { below, cookie: event.cookie });
        } else if is(Flags::IN_DELETE) {
            self.tell(WatchEvent::Removed { path });
        } else if event.mask.intersects(Flags::IN_CREATE | Flags::IN_MOVED_TO) {
            self.tell(WatchEvent::Created { path });
            if is_folder && self.is_recursive {
                self.add(&below, true);
            }
        } else {
            self.tell(WatchEvent::Modified { path });
        }
    }

    /// Of what is watched, not of what lies in it. Folders below are told of by those above them.
    fn take_own(&mut self, below: &Path, mask: Flags) {
        if !below.as_os_str().is_empty() {
            return;
        }
        if mask.intersects(Flags::IN_DELETE_SELF | Flags::IN_MOVE_SELF) {
            self.tell(WatchEvent::Removed { path: String::new() });
            self.folders = Folders::default();
        } else {
            self.tell(WatchEvent::Modified { path: String::new() });
        }
    }

    fn has_left(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            for watch in self.folders.take_below(&leaving.below) {
                // It may be gone itself.
                _ = self.inotify.rm_watch(watch);
            }
            self.tell(WatchEvent::Removed { path: shown(&leaving.below) });
        }
    }

    /// Writing to a file is many events of the kernel's and one of ours.
    fn tell(&mut self, event: WatchEvent) {
        match self.events.len() {
            MAX_EVENTS.. if self.events.last() != Some(&WatchEvent::Overflow) => {
                self.events.push(WatchEvent::Overflow);
            }
            0..MAX_EVENTS if self.events.last() != Some(&event) => self.events.push(event),
            _ => {}
        }
    }

    /// Watches a folder below, and with `is_told` tells what is in it already.
    fn add(&mut self, below: &Path, is_told: bool) {
        if self.folders.len() >= MAX_FOLDERS {
            return self.tell(WatchEvent::Overflow);
        }
        let mut flags = changes() | Flags::IN_ONLYDIR;
        let folder =
            self.root.folder(below).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
        // What is held has no link on its way.
        flags.set(Flags::IN_DONT_FOLLOW, !folder.as_ref().is_ok_and(Place::is_held));
        match folder.and_then(|folder| self.inotify.add_watch(folder.path(), flags)) {
            Ok(watch) => {
                self.folders.insert(watch, below.to_owned());
                self.add_below(below, is_told);
            }
            // Gone, or ours to see but not to look into.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => {}
            Err(_) => self.tell(WatchEvent::Overflow),
        }
    }

    /// No deeper than there are folders that may be watched.
    fn add_below(&mut self, folder: &Path, is_told: bool) {
        if !self.is_recursive {
            return;
        }
        let Ok(place) = self.root.folder(folder) else { return };
        let Ok(entries) = fs::read_dir(place.path()) else { return };
        for entry in entries.filter_map(Result::ok) {
            let below = folder.join(entry.file_name());
            if is_told {
                self.tell(WatchEvent::Created { path: shown(&below) });
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && below.components().count() < MAX_LEVELS {
                self.add(&below, is_told);
            }
        }
    }
}

impl Source {
    /// Readable when there are events.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Never blocks; `WouldBlock` when there are none.
    pub(crate) fn read(&self) -> io::Result<Happened> {
        let mut arrived = self.0.read_events()?;
        for _ in 1..MAX_READS {
            match self.0.read_events() {
                Ok(more) => arrived.extend(more),
                // Told again by the next read.
                Err(_) => break,
            }
        }
        Ok(Happened(arrived))
    }
}

/// Each level is a step on the stack and an open folder.
const MAX_LEVELS: usize = 128;

fn changes() -> Flags {
    Flags::IN_CREATE
        | Flags::IN_DELETE
        | Flags::IN_MOVED_FROM
        | Flags::IN_MOVED_TO
        | Flags::IN_MODIFY
        | Flags::IN_ATTRIB
        | Flags::IN_DELETE_SELF
        | Flags::IN_MOVE_SELF
}

fn shown(below: &Path) -> String {
    below.to_string_lossy().into_owned()
}
