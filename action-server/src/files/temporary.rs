//! A temporary file that replaces another file when it is complete, and is removed otherwise.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::FileError;
use super::resolved_path::ResolvedPath;

/// The name of a temporary file. The file is removed on drop.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    path: PathBuf,
    /// Keeps the path valid.
    _descriptor: Option<Arc<OwnedFd>>,
}

impl TemporaryFile {
    /// Creates a file in the folder of `target`. The umask applies to `mode`.
    pub(super) fn create_beside(target: &ResolvedPath, mode: u32) -> io::Result<(File, Self)> {
        Self::create(target.path().with_file_name(unused_name()), target, mode)
    }

    /// Creates a file in `folder`.
    pub(super) fn create_in(folder: &ResolvedPath, mode: u32) -> io::Result<(File, Self)> {
        Self::create(folder.path().join(unused_name()), folder, mode)
    }

    fn create(path: PathBuf, beside: &ResolvedPath, mode: u32) -> io::Result<(File, Self)> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)?;
        Ok((
            file,
            Self {
                path,
                _descriptor: beside.descriptor(),
            },
        ))
    }

    pub(super) fn rename_to(mut self, target: &ResolvedPath) -> io::Result<()> {
        fs::rename(&self.path, target.path())?;
        // The file has no temporary name any more.
        self.path.clear();
        Ok(())
    }

    /// Renames the file. An existing target is kept unless `is_over`.
    pub(super) fn rename_to_unless_taken(
        self,
        target: &ResolvedPath,
        is_over: bool,
    ) -> io::Result<()> {
        if !is_over {
            // A hard link is only created if the target does not exist. Dropping `self` removes the
            // temporary name.
            return fs::hard_link(&self.path, target.path());
        }
        self.rename_to(target)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // Ignores errors of a folder that allows to create files but not to remove them.
        if !self.path.as_os_str().is_empty() {
            _ = fs::remove_file(&self.path);
        }
    }
}

/// The name does not contain that of the target, which may have the maximum length.
pub(super) fn unused_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".glovebox-{}-{count}", std::process::id())
}

/// Returns the nearest existing parent folder of `target`. Missing folders are only created once
/// the file for them is complete, so that nothing is left of a failed operation.
pub(super) fn nearest_folder(target: &Path) -> Result<&Path, FileError> {
    let mut folders = target.ancestors().skip(1);
    match folders.find(|folder| fs::symlink_metadata(folder).is_ok()) {
        Some(folder) if folder.is_dir() => Ok(folder),
        Some(folder) => Err(FileError::Unfit {
            path: folder.to_owned(),
            problem: "is not a folder",
        }),
        None => Err(FileError::NotFound(target.to_owned())),
    }
}
