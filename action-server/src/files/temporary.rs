//! A file that is written beside the one whose place it takes, and removed again unless it does.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::FileError;
use super::place::Place;

/// Removed when dropped.
#[derive(Debug)]
pub(super) struct Temporary {
    path: PathBuf,
    /// The path is good as long as this is.
    _holder: Option<Arc<OwnedFd>>,
}

impl Temporary {
    /// In the folder of `target`. The process's mask is taken off `mode`.
    pub(super) fn beside(target: &Place, mode: u32) -> io::Result<(File, Self)> {
        Self::at(target.path().with_file_name(unused_name()), target, mode)
    }

    /// In `folder`.
    pub(super) fn within(folder: &Place, mode: u32) -> io::Result<(File, Self)> {
        Self::at(folder.path().join(unused_name()), folder, mode)
    }

    fn at(path: PathBuf, beside: &Place, mode: u32) -> io::Result<(File, Self)> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(mode).open(&path)?;
        Ok((file, Self { path, _holder: beside.holder() }))
    }

    pub(super) fn rename_to(mut self, target: &Place) -> io::Result<()> {
        fs::rename(&self.path, target.path())?;
        // There is nothing left to be removed.
        self.path.clear();
        Ok(())
    }

    /// The same, but what is there stays unless it `is_over`.
    pub(super) fn rename_to_unless_taken(self, target: &Place, is_over: bool) -> io::Result<()> {
        if !is_over {
            // A second name is made only where there is none; dropping this one removes the first.
            return fs::hard_link(&self.path, target.path());
        }
        self.rename_to(target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Nothing better can be done about a folder that lets files be made and not removed.
        if !self.path.as_os_str().is_empty() {
            _ = fs::remove_file(&self.path);
        }
    }
}

/// What is replaced may have the longest name there is, so its name is no part of this one.
pub(super) fn unused_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".glovebox-{}-{count}", std::process::id())
}

/// The nearest folder on the way to `target` that is there. Those that are missing are made when what goes into them is
/// whole, so that nothing is left of what never is.
pub(super) fn nearest_folder(target: &Path) -> Result<&Path, FileError> {
    let mut folders = target.ancestors().skip(1);
    match folders.find(|folder| fs::symlink_metadata(folder).is_ok()) {
        Some(folder) if folder.is_dir() => Ok(folder),
        Some(folder) => Err(FileError::Unfit { path: folder.to_owned(), problem: "is not a folder" }),
        None => Err(FileError::NotFound(target.to_owned())),
    }
}
