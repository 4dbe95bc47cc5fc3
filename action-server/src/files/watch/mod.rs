//! Reports changes in a folder, using inotify. Each step is short and blocks only on the disk;
//! waiting for events is left to the caller. A file that is created while its folder is being added
//! may be reported twice, but no change is missed without [`WatchEvent::Overflow`].

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
use super::resolved_path::ResolvedPath;
use folders::WatchedFolders;

/// Maximum number of folders of one watch. The kernel's default limit for a user is a few times as
/// high.
const MAX_FOLDERS: usize = 8192;

/// Maximum number of events of one step, about 1 MB of JSON.
const MAX_EVENTS: usize = 10_000;

/// Maximum number of reads of one step, of about 100 events each.
const MAX_READS: usize = 64;

/// A watched folder or file.
#[derive(Debug)]
pub(crate) struct Watcher {
    inotify: Arc<Inotify>,
    root: ResolvedPath,
    is_recursive: bool,
    folders: WatchedFolders,
    /// A file that has lost its name, until its new name or its removal is known.
    leaving: Option<PendingRename>,
    events: Vec<WatchEvent>,
}

#[derive(Debug)]
struct PendingRename {
    below: PathBuf,
    cookie: u32,
}

/// Reads the kernel's events.
#[derive(Debug)]
pub(crate) struct WatchSource(Arc<Inotify>);

/// Events of the kernel.
#[derive(Debug, Default)]
pub(crate) struct KernelEvents(Vec<InotifyEvent>);

/// Result of a step.
#[derive(Debug)]
pub(crate) struct WatchStep {
    pub(crate) events: Vec<WatchEvent>,
    /// A file has lost its name, and its new name may be reported soon.
    pub(crate) is_leaving: bool,
    /// All watched files are removed.
    pub(crate) is_over: bool,
}

impl Watcher {
    /// Starts a watch. All later changes are reported.
    pub(crate) fn start(files: &Files, path: &Path, is_recursive: bool) -> Result<Self, FileError> {
        let failed = |errno: Errno| match errno {
            Errno::EMFILE | Errno::ENOSPC => FileError::Unfit {
                path: path.to_owned(),
                problem: "cannot be watched: the system's limit of inotify watches is reached",
            },
            errno => FileError::io("watch", path, errno.into()),
        };
        let root = files.resolve(path)?;
        let inotify =
            Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(failed)?;
        let watch = inotify.add_watch(root.path(), changes()).map_err(failed)?;
        let inotify = Arc::new(inotify);
        let mut folders = WatchedFolders::default();
        folders.insert(watch, PathBuf::new());
        let events = Vec::new();
        let mut watcher = Self {
            inotify,
            root,
            is_recursive,
            folders,
            leaving: None,
            events,
        };
        watcher.add_below(Path::new(""), false);
        Ok(watcher)
    }

    pub(crate) fn source(&self) -> WatchSource {
        WatchSource(Arc::clone(&self.inotify))
    }

    /// Handles events. With `is_timed_out`, a pending rename is reported as a removal.
    pub(crate) fn step(&mut self, arrived: KernelEvents, is_timed_out: bool) -> WatchStep {
        arrived.0.into_iter().for_each(|event| self.handle(event));
        if is_timed_out {
            self.report_removal();
        }
        WatchStep {
            events: std::mem::take(&mut self.events),
            is_leaving: self.leaving.is_some(),
            is_over: self.folders.is_empty(),
        }
    }

    fn handle(&mut self, event: InotifyEvent) {
        let is = |flag| event.mask.contains(flag);
        if is(Flags::IN_Q_OVERFLOW) {
            self.report(WatchEvent::Overflow);
            return self.add_below(Path::new(""), false);
        }
        let Some(folder) = self.folders.get(event.wd).cloned() else {
            return;
        };
        if is(Flags::IN_IGNORED) {
            return self.folders.remove(event.wd);
        }
        let Some(name) = event.name.as_ref() else {
            return self.handle_own(&folder, event.mask);
        };
        let (below, is_folder) = (folder.join(name), is(Flags::IN_ISDIR));
        match self.leaving.take() {
            Some(leaving) if is(Flags::IN_MOVED_TO) && leaving.cookie == event.cookie => {
                self.folders.rename(&leaving.below, &below);
                return self.report(WatchEvent::Moved {
                    from: to_text(&leaving.below),
                    path: to_text(&below),
                });
            }
            leaving => {
                self.leaving = leaving;
                self.report_removal();
            }
        }
        let path = to_text(&below);
        if is(Flags::IN_MOVED_FROM) {
            self.leaving = Some(PendingRename {
                below,
                cookie: event.cookie,
            });
        } else if is(Flags::IN_DELETE) {
            self.report(WatchEvent::Removed { path });
        } else if event.mask.intersects(Flags::IN_CREATE | Flags::IN_MOVED_TO) {
            self.report(WatchEvent::Created { path });
            if is_folder && self.is_recursive {
                self.add(&below, true);
            }
        } else {
            self.report(WatchEvent::Modified { path });
        }
    }

    /// Handles an event of the watched path itself. Its entries are handled elsewhere, and folders
    /// below it are reported by their parents.
    fn handle_own(&mut self, below: &Path, mask: Flags) {
        if !below.as_os_str().is_empty() {
            return;
        }
        if mask.intersects(Flags::IN_DELETE_SELF | Flags::IN_MOVE_SELF) {
            self.report(WatchEvent::Removed {
                path: String::new(),
            });
            self.folders = WatchedFolders::default();
        } else {
            self.report(WatchEvent::Modified {
                path: String::new(),
            });
        }
    }

    fn report_removal(&mut self) {
        if let Some(leaving) = self.leaving.take() {
            for watch in self.folders.remove_below(&leaving.below) {
                // It may be gone itself.
                _ = self.inotify.rm_watch(watch);
            }
            self.report(WatchEvent::Removed {
                path: to_text(&leaving.below),
            });
        }
    }

    /// Merges equal events: writing to a file causes many.
    fn report(&mut self, event: WatchEvent) {
        match self.events.len() {
            MAX_EVENTS.. if self.events.last() != Some(&WatchEvent::Overflow) => {
                self.events.push(WatchEvent::Overflow);
            }
            0..MAX_EVENTS if self.events.last() != Some(&event) => self.events.push(event),
            _ => {}
        }
    }

    /// Watches a subfolder. With `reports_contents`, reports its contents as created.
    fn add(&mut self, below: &Path, reports_contents: bool) {
        if self.folders.len() >= MAX_FOLDERS {
            return self.report(WatchEvent::Overflow);
        }
        let mut flags = changes() | Flags::IN_ONLYDIR;
        let folder = self
            .root
            .folder(below)
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)));
        // The path of an open folder contains no links.
        flags.set(
            Flags::IN_DONT_FOLLOW,
            !folder.as_ref().is_ok_and(ResolvedPath::is_open),
        );
        match folder.and_then(|folder| self.inotify.add_watch(folder.path(), flags)) {
            Ok(watch) => {
                self.folders.insert(watch, below.to_owned());
                self.add_below(below, reports_contents);
            }
            // Removed concurrently, or not readable.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => {}
            Err(_) => self.report(WatchEvent::Overflow),
        }
    }

    /// Adds the subfolders of a folder, up to [`MAX_LEVELS`].
    fn add_below(&mut self, folder: &Path, reports_contents: bool) {
        if !self.is_recursive {
            return;
        }
        let Ok(resolved) = self.root.folder(folder) else {
            return;
        };
        let Ok(entries) = fs::read_dir(resolved.path()) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let below = folder.join(entry.file_name());
            if reports_contents {
                self.report(WatchEvent::Created {
                    path: to_text(&below),
                });
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && below.components().count() < MAX_LEVELS
            {
                self.add(&below, reports_contents);
            }
        }
    }
}

impl WatchSource {
    /// Returns a descriptor that is readable when there are events.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Reads events without blocking. `WouldBlock` if there are none.
    pub(crate) fn read(&self) -> io::Result<KernelEvents> {
        let mut arrived = self.0.read_events()?;
        for _ in 1..MAX_READS {
            match self.0.read_events() {
                Ok(more) => arrived.extend(more),
                // The next read returns the error again.
                Err(_) => break,
            }
        }
        Ok(KernelEvents(arrived))
    }
}

/// Maximum depth. Each level uses the stack and an open folder.
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

fn to_text(below: &Path) -> String {
    below.to_string_lossy().into_owned()
}
