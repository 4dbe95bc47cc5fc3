//! The folder that file operations are confined to, if a root is set.
//!
//! The kernel checks that a path is beneath the root (`openat2` with `RESOLVE_BENEATH`). The text
//! of a path only determines where the lookup starts. `..` and links are allowed as long as every
//! step stays beneath. Absolute links are always rejected. Mounts beneath the root and hard links
//! are allowed. An open folder stays open: if it is moved out of the root during an operation, the
//! operation continues in it.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use super::beneath::{self, Links};
use super::error::FileError;
use super::path::MAX_LINKS;
use super::resolved_path::ResolvedPath;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    /// The canonical path and the path as it was given: prefixes of absolute paths.
    names: [PathBuf; 2],
}

impl Root {
    /// Opens the root.
    ///
    /// # Errors
    /// The kernel does not support it, or `working_dir` is outside of the root.
    pub(super) fn around(working_dir: &Path, given: &Path) -> anyhow::Result<Self> {
        let root = Self::open(given)?;
        if root.resolve(working_dir).is_err() {
            let root = root.path().display();
            bail!(
                "the working directory {} is not beneath the root {root}",
                working_dir.display()
            );
        }
        Ok(root)
    }

    pub(super) fn open(given: &Path) -> anyhow::Result<Self> {
        let shown = given.display();
        let canonical = given
            .canonicalize()
            .with_context(|| format!("cannot open the root {shown}"))?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(&canonical, flags, Mode::empty())
            .with_context(|| format!("cannot open the root {shown}"))?;
        let names = [canonical, given.components().collect()];
        let root = Self { folder, names };
        root.check()?;
        Ok(root)
    }

    /// Checks that the kernel supports it.
    fn check(&self) -> anyhow::Result<()> {
        if let Err(errno) =
            beneath::open(&self.folder, Path::new(""), OFlag::empty(), Links::Followed)
        {
            let reason = match errno {
                Errno::ENOSYS => "the kernel has no openat2, which came with Linux 5.6",
                Errno::EPERM => {
                    "openat2 is denied, probably by a seccomp profile from before Linux 5.6"
                }
                _ => "openat2 fails",
            };
            return Err(errno).with_context(|| format!("cannot enforce --root: {reason}"));
        }
        let opened = fstat(&self.folder).context("cannot inspect the root")?;
        let found = self.resolve(self.path())?;
        match fs::metadata(found.path()) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == (opened.st_dev, opened.st_ino) => {
                Ok(())
            }
            _ => bail!("cannot enforce --root: /proc is not mounted"),
        }
    }

    fn path(&self) -> &Path {
        let [canonical, _] = &self.names;
        canonical
    }

    /// Resolves a path, following links.
    pub(super) fn resolve(&self, path: &Path) -> Result<ResolvedPath, FileError> {
        self.resolve_relative(self.relative(path)?, path)
    }

    /// Resolves a path to a name in a folder, whether the file exists or not.
    pub(super) fn resolve_name(&self, path: &Path) -> Result<ResolvedPath, FileError> {
        self.resolve_relative_name(self.relative(path)?, path)
    }

    /// Follows links to the file to write, which need not exist.
    pub(super) fn resolve_target(&self, path: &Path) -> Result<ResolvedPath, FileError> {
        let mut relative = self.relative(path)?.to_owned();
        for _ in 0..MAX_LINKS {
            let resolved = self.resolve_relative_name(&relative, path)?;
            // Without a name, the path is a magic link of `/proc`.
            let link = if resolved.has_name() {
                fs::read_link(resolved.path()).ok()
            } else {
                None
            };
            relative = match (link, relative.parent()) {
                (Some(link), _) if link.is_absolute() => {
                    return Err(FileError::OutsideRoot(path.to_owned()));
                }
                (Some(link), Some(parent)) => parent.join(link).components().collect(),
                _ => return Ok(resolved),
            };
        }
        Err(FileError::io("open", path, Errno::ELOOP.into()))
    }

    /// Removes the root from an absolute path. The kernel checks the rest.
    fn relative<'a>(&self, path: &'a Path) -> Result<&'a Path, FileError> {
        let relative = self
            .names
            .iter()
            .find_map(|name| path.strip_prefix(name).ok());
        relative.ok_or_else(|| FileError::OutsideRoot(path.to_owned()))
    }

    fn resolve_relative(
        &self,
        relative: &Path,
        display_path: &Path,
    ) -> Result<ResolvedPath, FileError> {
        let found = beneath::open(&self.folder, relative, OFlag::empty(), Links::Followed);
        found
            .map(|found| ResolvedPath::from_open(found, display_path))
            .map_err(|errno| to_file_error(display_path, errno))
    }

    fn resolve_relative_name(
        &self,
        relative: &Path,
        display_path: &Path,
    ) -> Result<ResolvedPath, FileError> {
        let (Some(mut folder), Some(name)) = (relative.parent(), relative.file_name()) else {
            return self.resolve_relative(relative, display_path);
        };
        let mut missing: Vec<OsString> = Vec::new();
        loop {
            let opened = beneath::open(&self.folder, folder, OFlag::O_DIRECTORY, Links::Followed);
            match (opened, folder.parent(), folder.file_name()) {
                (Ok(folder), ..) => {
                    missing.reverse();
                    return Ok(ResolvedPath::in_folder(folder, missing, name, display_path));
                }
                (Err(Errno::ENOENT), Some(upper), Some(name)) => {
                    missing.push(name.to_owned());
                    folder = upper;
                }
                (Err(errno), ..) => return Err(to_file_error(display_path, errno)),
            }
        }
    }
}

fn to_file_error(display_path: &Path, errno: Errno) -> FileError {
    match errno {
        Errno::EXDEV => FileError::OutsideRoot(display_path.to_owned()),
        errno => FileError::io("open", display_path, errno.into()),
    }
}
