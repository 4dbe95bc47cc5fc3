//! The resolved path of an operation: a path for system calls, and the path that clients see.
//!
//! Without a root both are the path of the request. With a root, the path for system calls goes
//! through an open descriptor (`/proc/self/fd/N` or `/proc/self/fd/N/NAME`), so that concurrent
//! changes cannot lead it elsewhere. It is valid only as long as the `ResolvedPath` exists, so it
//! is returned as a reference.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};

use super::beneath::{self, Links};
use super::error::FileError;
use super::temporary;

/// A path that never exists, and whose siblings do not exist either.
const NOWHERE: &str = "/proc/self/fd/nowhere/nowhere";

/// A resolved path. Clones share the descriptor.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedPath {
    path: PathBuf,
    /// `None` if it is equal to `path`.
    display_path: Option<PathBuf>,
    anchor: Anchor,
}

/// The open descriptor that a path goes through.
#[derive(Debug, Clone)]
enum Anchor {
    /// There is no root.
    None,
    /// The file itself is open.
    File(Arc<OwnedFd>),
    /// The nearest existing parent folder is open. `missing` are the names of the folders between
    /// it and `name`.
    Folder {
        folder: Arc<OwnedFd>,
        missing: Vec<OsString>,
        name: OsString,
    },
}

impl ResolvedPath {
    /// A path without a root.
    pub(super) fn unconfined(path: PathBuf) -> Self {
        Self {
            path,
            display_path: None,
            anchor: Anchor::None,
        }
    }

    /// The path of an open file.
    pub(super) fn from_open(file: OwnedFd, display_path: &Path) -> Self {
        let file = Arc::new(file);
        Self {
            path: descriptor_path(&file),
            display_path: Some(display_path.to_owned()),
            anchor: Anchor::File(file),
        }
    }

    /// A name in an open folder. A link is not followed.
    pub(super) fn in_folder(
        folder: OwnedFd,
        missing: Vec<OsString>,
        name: &OsStr,
        display_path: &Path,
    ) -> Self {
        let folder = Arc::new(folder);
        let path = if missing.is_empty() {
            descriptor_path(&folder).join(name)
        } else {
            NOWHERE.into()
        };
        let anchor = Anchor::Folder {
            folder,
            missing,
            name: name.to_owned(),
        };
        Self {
            path,
            display_path: Some(display_path.to_owned()),
            anchor,
        }
    }

    /// Returns the path for system calls. It is valid as long as `self` exists.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path that clients see.
    pub(super) fn display_path(&self) -> &Path {
        self.display_path.as_deref().unwrap_or(&self.path)
    }

    /// Returns the real path, which is the same for all ways to name a file.
    pub(super) fn key(&self) -> Cow<'_, Path> {
        let real = |of: &OwnedFd| {
            fs::read_link(descriptor_path(of)).unwrap_or_else(|_| self.display_path().to_owned())
        };
        match &self.anchor {
            Anchor::None => Cow::Borrowed(&self.path),
            Anchor::File(file) => Cow::Owned(real(file)),
            Anchor::Folder {
                folder,
                missing,
                name,
            } => Cow::Owned(
                missing
                    .iter()
                    .fold(real(folder), |path, folder| path.join(folder))
                    .join(name),
            ),
        }
    }

    /// Returns whether the file can be removed, renamed or replaced. The root and paths that end
    /// with `..` have no name.
    pub(super) fn has_name(&self) -> bool {
        match &self.anchor {
            Anchor::None => self.path.file_name().is_some(),
            Anchor::File(_) => false,
            Anchor::Folder { .. } => true,
        }
    }

    /// Returns whether system calls may follow a link at the end of the path. With a root and a
    /// name, a link that is created concurrently could lead out of the root.
    pub(super) fn is_followed(&self) -> bool {
        !matches!(self.anchor, Anchor::Folder { .. })
    }

    /// Returns whether the file itself is open. Never without a root.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.anchor, Anchor::File(_))
    }

    /// Returns the metadata of the file, or of the link if it may not be followed.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        if self.is_followed() {
            fs::metadata(&self.path)
        } else {
            fs::symlink_metadata(&self.path)
        }
    }

    /// Opens the file, so that its path may be followed. Fails with `ELOOP` for a link.
    pub(super) fn pin(&self) -> io::Result<Cow<'_, Self>> {
        match &self.anchor {
            Anchor::None | Anchor::File(_) => Ok(Cow::Borrowed(self)),
            Anchor::Folder { missing, .. } if !missing.is_empty() => Err(Errno::ENOENT.into()),
            Anchor::Folder { folder, name, .. } => {
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let file = openat(folder, name.as_os_str(), flags, Mode::empty())?;
                let found = Self::from_open(file, self.display_path());
                match found.metadata()?.is_symlink() {
                    true => Err(Errno::ELOOP.into()),
                    false => Ok(Cow::Owned(found)),
                }
            }
        }
    }

    /// Returns the nearest existing parent folder. Missing folders are only created once the file
    /// for them is complete, so that nothing is left of a failed operation.
    pub(super) fn nearest_folder(&self) -> Result<Self, FileError> {
        match &self.anchor {
            Anchor::None => {
                temporary::nearest_folder(&self.path).map(|path| Self::unconfined(path.to_owned()))
            }
            Anchor::File(_) => Ok(self.clone()),
            Anchor::Folder { folder, .. } => Ok(Self {
                path: descriptor_path(folder),
                display_path: Some(
                    self.display_path()
                        .parent()
                        .unwrap_or(self.display_path())
                        .to_owned(),
                ),
                anchor: Anchor::File(Arc::clone(folder)),
            }),
        }
    }

    /// Creates the missing parent folders.
    pub(super) fn with_parents(&self) -> Result<Cow<'_, Self>, FileError> {
        let parent = self.display_path().parent().unwrap_or(self.display_path());
        let failed = |error| FileError::io("create the folder", parent, error);
        match &self.anchor {
            Anchor::None => fs::create_dir_all(parent)
                .map_err(failed)
                .map(|()| Cow::Borrowed(self)),
            Anchor::Folder {
                folder,
                missing,
                name,
            } if !missing.is_empty() => {
                let made = make_all(folder, missing).map_err(|errno| failed(errno.into()))?;
                Ok(Cow::Owned(Self::in_folder(
                    made,
                    Vec::new(),
                    name,
                    self.display_path(),
                )))
            }
            Anchor::File(_) | Anchor::Folder { .. } => Ok(Cow::Borrowed(self)),
        }
    }

    /// Opens the folder at `below` in this folder. With a root, no links are followed.
    pub(super) fn folder(&self, below: &Path) -> io::Result<Self> {
        match &self.anchor {
            Anchor::None => Ok(Self::unconfined(self.path.join(below))),
            Anchor::File(folder) => {
                let found = beneath::open(folder, below, OFlag::O_DIRECTORY, Links::Refused)?;
                Ok(Self::from_open(found, &self.display_path().join(below)))
            }
            Anchor::Folder { .. } => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Returns the name at `below` in this folder. With a root, no links are followed.
    pub(super) fn entry(&self, below: &Path) -> io::Result<Self> {
        match (&self.anchor, below.parent(), below.file_name()) {
            (Anchor::None, ..) => Ok(Self::unconfined(self.path.join(below))),
            (Anchor::File(folder), Some(parent), Some(name)) => {
                let parent = beneath::open(folder, parent, OFlag::O_DIRECTORY, Links::Refused)?;
                Ok(Self::in_folder(
                    parent,
                    Vec::new(),
                    name,
                    &self.display_path().join(below),
                ))
            }
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Returns the descriptor that paths in this folder depend on.
    pub(super) fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        match &self.anchor {
            Anchor::None => None,
            Anchor::File(file) | Anchor::Folder { folder: file, .. } => Some(Arc::clone(file)),
        }
    }
}

fn descriptor_path(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// Creates nested folders. A link that is created concurrently is not followed.
fn make_all(folder: &OwnedFd, names: &[OsString]) -> nix::Result<OwnedFd> {
    let mut made: Option<OwnedFd> = None;
    for name in names {
        let folder = made.as_ref().unwrap_or(folder);
        match mkdirat(
            folder,
            name.as_os_str(),
            Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO,
        ) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
        made = Some(beneath::open(
            folder,
            Path::new(name),
            OFlag::O_DIRECTORY,
            Links::Refused,
        )?);
    }
    made.ok_or(Errno::ENOENT)
}
