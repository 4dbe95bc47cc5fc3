//! The folder that the file interface is kept in, if it is: what requests name is found beneath it or not at all.
//!
//! The kernel says what is beneath (`openat2` with `RESOLVE_BENEATH`); a path's text decides only where the search begins.
//! So `..` and links are fine as long as they stay beneath, on every step. An absolute link is refused wherever it leads.
//! What is mounted beneath is beneath, and a hard link is as good as any other name. What was found stays found: a folder
//! that is moved out while it is worked in is still worked in.

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
use super::place::Place;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    /// What an absolute path may begin with.
    names: [PathBuf; 2],
}

impl Root {
    /// # Errors
    /// The kernel cannot keep to it, or relative paths would begin outside.
    pub(super) fn around(working_dir: &Path, given: &Path) -> anyhow::Result<Self> {
        let root = Self::open(given)?;
        if root.found(working_dir).is_err() {
            let root = root.told().display();
            bail!("the working directory {} is not beneath the root {root}", working_dir.display());
        }
        Ok(root)
    }

    pub(super) fn open(given: &Path) -> anyhow::Result<Self> {
        let shown = given.display();
        let canonical = given.canonicalize().with_context(|| format!("opening the root {shown}"))?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder =
            open(&canonical, flags, Mode::empty()).with_context(|| format!("opening the root {shown}"))?;
        let names = [canonical, given.components().collect()];
        let root = Self { folder, names };
        root.check()?;
        Ok(root)
    }

    /// Whether it can be kept to.
    fn check(&self) -> anyhow::Result<()> {
        if let Err(errno) = beneath::open(&self.folder, Path::new(""), OFlag::empty(), Links::Followed) {
            let why = match errno {
                Errno::ENOSYS => "the kernel has no openat2, which came with Linux 5.6",
                Errno::EPERM => "openat2 is forbidden here, as by a seccomp profile from before Linux 5.6",
                _ => "openat2 fails",
            };
            return Err(errno).with_context(|| format!("--root cannot be kept to: {why}"));
        }
        let opened = fstat(&self.folder).context("looking at the root")?;
        let found = self.found(self.told())?;
        match fs::metadata(found.path()) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == (opened.st_dev, opened.st_ino) => Ok(()),
            _ => bail!("--root cannot be kept to: it needs /proc, which is not mounted"),
        }
    }

    fn told(&self) -> &Path {
        let [canonical, _] = &self.names;
        canonical
    }

    /// What is at `path`, behind links.
    pub(super) fn found(&self, path: &Path) -> Result<Place, FileError> {
        self.found_at(self.relative(path)?, path)
    }

    /// The name at `path`, whether anything is there or not.
    pub(super) fn named(&self, path: &Path) -> Result<Place, FileError> {
        self.named_at(self.relative(path)?, path)
    }

    /// The file behind links, also when it does not exist yet.
    pub(super) fn target(&self, path: &Path) -> Result<Place, FileError> {
        let mut relative = self.relative(path)?.to_owned();
        for _ in 0..MAX_LINKS {
            let place = self.named_at(&relative, path)?;
            // The path of what has no name is a link of /proc's.
            let link = if place.has_name() { fs::read_link(place.path()).ok() } else { None };
            relative = match (link, relative.parent()) {
                (Some(link), _) if link.is_absolute() => return Err(FileError::OutsideRoot(path.to_owned())),
                (Some(link), Some(parent)) => parent.join(link).components().collect(),
                _ => return Ok(place),
            };
        }
        Err(FileError::io("opening", path, Errno::ELOOP.into()))
    }

    /// A path of ours has its root taken off; the kernel judges what is left.
    fn relative<'a>(&self, path: &'a Path) -> Result<&'a Path, FileError> {
        let relative = self.names.iter().find_map(|name| path.strip_prefix(name).ok());
        relative.ok_or_else(|| FileError::OutsideRoot(path.to_owned()))
    }

    fn found_at(&self, relative: &Path, told: &Path) -> Result<Place, FileError> {
        let found = beneath::open(&self.folder, relative, OFlag::empty(), Links::Followed);
        found.map(|found| Place::of(found, told)).map_err(|errno| refused(told, errno))
    }

    fn named_at(&self, relative: &Path, told: &Path) -> Result<Place, FileError> {
        let (Some(mut folder), Some(name)) = (relative.parent(), relative.file_name()) else {
            return self.found_at(relative, told);
        };
        let mut missing: Vec<OsString> = Vec::new();
        loop {
            let opened = beneath::open(&self.folder, folder, OFlag::O_DIRECTORY, Links::Followed);
            match (opened, folder.parent(), folder.file_name()) {
                (Ok(folder), ..) => {
                    missing.reverse();
                    return Ok(Place::named(folder, missing, name, told));
                }
                (Err(Errno::ENOENT), Some(upper), Some(name)) => {
                    missing.push(name.to_owned());
                    folder = upper;
                }
                (Err(errno), ..) => return Err(refused(told, errno)),
            }
        }
    }
}

fn refused(told: &Path, errno: Errno) -> FileError {
    match errno {
        Errno::EXDEV => FileError::OutsideRoot(told.to_owned()),
        errno => FileError::io("opening", told, errno.into()),
    }
}
