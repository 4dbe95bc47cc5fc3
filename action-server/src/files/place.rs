//! Where a verb works: a path for the system, and what clients are told of it.
//!
//! Without a root both are the client's path. With one, the path goes through an open descriptor
//! (`/proc/self/fd/N` or `/proc/self/fd/N/NAME`), so that it leads where it led when it was found, whatever is exchanged
//! meanwhile. It is good as long as its place is held, so it is lent and never kept.

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

/// Leads nowhere, and so does any other name beside it.
const NOWHERE: &str = "/proc/self/fd/nowhere/nowhere";

/// Cloning shares what is held.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    path: PathBuf,
    /// Nothing: the path.
    told: Option<PathBuf>,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    /// There is no root.
    Nothing,
    /// What is meant.
    Itself(Arc<OwnedFd>),
    /// The folder in which it has its name, or would have, were the folders there that are `missing` on the way.
    Folder { folder: Arc<OwnedFd>, missing: Vec<OsString>, name: OsString },
}

impl Place {
    /// Wherever it leads.
    pub(super) fn anywhere(path: PathBuf) -> Self {
        Self { path, told: None, held: Held::Nothing }
    }

    /// What is open already.
    pub(super) fn of(found: OwnedFd, told: &Path) -> Self {
        let found = Arc::new(found);
        Self { path: path_of(&found), told: Some(told.to_owned()), held: Held::Itself(found) }
    }

    /// A name in an open folder; a link there is not followed.
    pub(super) fn named(folder: OwnedFd, missing: Vec<OsString>, name: &OsStr, told: &Path) -> Self {
        let folder = Arc::new(folder);
        let path = if missing.is_empty() { path_of(&folder).join(name) } else { NOWHERE.into() };
        let held = Held::Folder { folder, missing, name: name.to_owned() };
        Self { path, told: Some(told.to_owned()), held }
    }

    /// For the system, while this is held.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// For clients.
    pub(super) fn told(&self) -> &Path {
        self.told.as_deref().unwrap_or(&self.path)
    }

    /// The file's real path, whichever way and descriptor led to it.
    pub(super) fn key(&self) -> Cow<'_, Path> {
        let real = |of: &OwnedFd| fs::read_link(path_of(of)).unwrap_or_else(|_| self.told().to_owned());
        match &self.held {
            Held::Nothing => Cow::Borrowed(&self.path),
            Held::Itself(found) => Cow::Owned(real(found)),
            Held::Folder { folder, missing, name } => {
                Cow::Owned(missing.iter().fold(real(folder), |path, folder| path.join(folder)).join(name))
            }
        }
    }

    /// It can be removed, renamed, or have another put in its place. The root has no name, nor has what is named by `..`.
    pub(super) fn has_name(&self) -> bool {
        match &self.held {
            Held::Nothing => self.path.file_name().is_some(),
            Held::Itself(_) => false,
            Held::Folder { .. } => true,
        }
    }

    /// The path is one that a system call may follow to its end. Otherwise whoever puts a link there would lead us out.
    pub(super) fn is_followed(&self) -> bool {
        !matches!(self.held, Held::Folder { .. })
    }

    /// There is a root, and what is meant is held.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.held, Held::Itself(_))
    }

    /// Of what is there; of a link that lies at a name in a held folder, the link's.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        if self.is_followed() { fs::metadata(&self.path) } else { fs::symlink_metadata(&self.path) }
    }

    /// The same place with what is there held: it may be followed from then on. No link is.
    pub(super) fn itself(&self) -> io::Result<Cow<'_, Self>> {
        match &self.held {
            Held::Nothing | Held::Itself(_) => Ok(Cow::Borrowed(self)),
            Held::Folder { missing, .. } if !missing.is_empty() => Err(Errno::ENOENT.into()),
            Held::Folder { folder, name, .. } => {
                let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let found = Self::of(openat(folder, name.as_os_str(), flags, Mode::empty())?, self.told());
                match found.metadata()?.is_symlink() {
                    true => Err(Errno::ELOOP.into()),
                    false => Ok(Cow::Owned(found)),
                }
            }
        }
    }

    /// The nearest folder on the way here that is there. Those that are missing are made when what goes into them is whole,
    /// so that nothing is left of what never is.
    pub(super) fn nearest_folder(&self) -> Result<Self, FileError> {
        match &self.held {
            Held::Nothing => {
                temporary::nearest_folder(&self.path).map(|path| Self::anywhere(path.to_owned()))
            }
            Held::Itself(_) => Ok(self.clone()),
            Held::Folder { folder, .. } => Ok(Self {
                path: path_of(folder),
                told: Some(self.told().parent().unwrap_or(self.told()).to_owned()),
                held: Held::Itself(Arc::clone(folder)),
            }),
        }
    }

    /// Makes the folders that are missing on the way here.
    pub(super) fn with_parents(&self) -> Result<Cow<'_, Self>, FileError> {
        let parent = self.told().parent().unwrap_or(self.told());
        let failed = |error| FileError::io("making the folder", parent, error);
        match &self.held {
            Held::Nothing => fs::create_dir_all(parent).map_err(failed).map(|()| Cow::Borrowed(self)),
            Held::Folder { folder, missing, name } if !missing.is_empty() => {
                let made = make_all(folder, missing).map_err(|errno| failed(errno.into()))?;
                Ok(Cow::Owned(Self::named(made, Vec::new(), name, self.told())))
            }
            Held::Itself(_) | Held::Folder { .. } => Ok(Cow::Borrowed(self)),
        }
    }

    /// The folder at `below` in this one. With a root, links are not followed, not on the way either.
    pub(super) fn folder(&self, below: &Path) -> io::Result<Self> {
        match &self.held {
            Held::Nothing => Ok(Self::anywhere(self.path.join(below))),
            Held::Itself(folder) => {
                let found = beneath::open(folder, below, OFlag::O_DIRECTORY, Links::Refused)?;
                Ok(Self::of(found, &self.told().join(below)))
            }
            Held::Folder { .. } => Err(Errno::ENOTDIR.into()),
        }
    }

    /// What has its name at `below` in this folder. With a root, links are not followed on the way, nor the last.
    pub(super) fn entry(&self, below: &Path) -> io::Result<Self> {
        match (&self.held, below.parent(), below.file_name()) {
            (Held::Nothing, ..) => Ok(Self::anywhere(self.path.join(below))),
            (Held::Itself(folder), Some(parent), Some(name)) => {
                let parent = beneath::open(folder, parent, OFlag::O_DIRECTORY, Links::Refused)?;
                Ok(Self::named(parent, Vec::new(), name, &self.told().join(below)))
            }
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    /// For what lies at a name in this folder, which must stay held meanwhile.
    pub(super) fn holder(&self) -> Option<Arc<OwnedFd>> {
        match &self.held {
            Held::Nothing => None,
            Held::Itself(held) | Held::Folder { folder: held, .. } => Some(Arc::clone(held)),
        }
    }
}

fn path_of(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

/// One in the other. What is a link by then is not followed.
fn make_all(folder: &OwnedFd, names: &[OsString]) -> nix::Result<OwnedFd> {
    let mut made: Option<OwnedFd> = None;
    for name in names {
        let folder = made.as_ref().unwrap_or(folder);
        match mkdirat(folder, name.as_os_str(), Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
        made = Some(beneath::open(folder, Path::new(name), OFlag::O_DIRECTORY, Links::Refused)?);
    }
    made.ok_or(Errno::ENOENT)
}
