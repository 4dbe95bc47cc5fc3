//! Folders by descriptor. Every step is taken from an open folder to a name in it that is no link, so that nothing that
//! is exchanged meanwhile leads anywhere else.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat, mkdirat};
use nix::unistd::{LinkatFlags, UnlinkatFlags, linkat, symlinkat, unlinkat};

use crate::files::place::Place;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// What is at a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Folder,
    File,
    Other,
}

const FLAGS: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl Folder {
    /// Without a root, links on the way are followed; the last is never.
    pub(super) fn at(place: &Place) -> io::Result<Self> {
        // The path of what is held is a link of /proc's.
        let links = if place.is_held() { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        Ok(Self(openat(AT_FDCWD, place.path(), FLAGS | links, Mode::empty())?))
    }

    /// The same folder.
    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    pub(super) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, FLAGS | OFlag::O_NOFOLLOW, Mode::empty())?))
    }

    /// The folder of this name, made if there is nothing.
    pub(super) fn folder_made(&self, name: &OsStr) -> io::Result<Self> {
        match mkdirat(&self.0, name, Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO) {
            Ok(()) | Err(Errno::EEXIST) => self.folder(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A new file; nothing may be there.
    pub(super) fn new_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    pub(super) fn new_symlink(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.0, name)?)
    }

    /// Another name for a file, which may be in another folder.
    pub(super) fn new_hard_link(&self, name: &OsStr, folder: &Self, file: &OsStr) -> io::Result<()> {
        Ok(linkat(&folder.0, file, &self.0, name, LinkatFlags::empty())?)
    }

    pub(super) fn find(&self, name: &OsStr) -> io::Result<Found> {
        let found = match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(Found::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        Ok(match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFDIR => Found::Folder,
            SFlag::S_IFREG => Found::File,
            _ => Found::Other,
        })
    }

    pub(super) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir)?)
    }

    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(&self.0, Mode::from_bits_truncate(mode))?)
    }

    pub(super) fn move_to(&self, name: &OsStr, folder: &Self) -> io::Result<()> {
        Ok(renameat(&self.0, name, &folder.0, name)?)
    }

    pub(super) fn names(&self) -> io::Result<Vec<std::ffi::OsString>> {
        let listed = openat(self.0.as_fd(), ".", FLAGS, Mode::empty())?;
        let names = Dir::from_fd(listed)?.into_iter().map(|entry| {
            let entry = entry?;
            Ok(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())
        });
        names.filter(|name| !matches!(name, Ok(name) if name == "." || name == "..")).collect()
    }
}
