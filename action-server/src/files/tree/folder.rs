//! Folders by descriptor. Every step opens a name in an open folder without following links, so
//! that concurrent changes cannot lead elsewhere.

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

use crate::files::resolved_path::ResolvedPath;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// The type of a directory entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FolderEntry {
    Nothing,
    Folder,
    File,
    Other,
}

const FLAGS: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

impl Folder {
    /// Opens a folder. Without a root, links on the way are followed, but not the last component.
    pub(super) fn open(resolved: &ResolvedPath) -> io::Result<Self> {
        // The path of an open file is a magic link of `/proc`.
        let links = if resolved.is_open() {
            OFlag::empty()
        } else {
            OFlag::O_NOFOLLOW
        };
        Ok(Self(openat(
            AT_FDCWD,
            resolved.path(),
            FLAGS | links,
            Mode::empty(),
        )?))
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    pub(super) fn folder(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(openat(
            &self.0,
            name,
            FLAGS | OFlag::O_NOFOLLOW,
            Mode::empty(),
        )?))
    }

    /// Opens the folder, which is created if it does not exist.
    pub(super) fn create_folder(&self, name: &OsStr) -> io::Result<Self> {
        match mkdirat(&self.0, name, Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO) {
            Ok(()) | Err(Errno::EEXIST) => self.folder(name),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates a file, which must not exist.
    pub(super) fn new_file(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    pub(super) fn new_symlink(&self, name: &OsStr, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.0, name)?)
    }

    /// Creates a hard link to a file, which may be in another folder.
    pub(super) fn new_hard_link(
        &self,
        name: &OsStr,
        folder: &Self,
        file: &OsStr,
    ) -> io::Result<()> {
        Ok(linkat(
            &folder.0,
            file,
            &self.0,
            name,
            LinkatFlags::empty(),
        )?)
    }

    pub(super) fn find(&self, name: &OsStr) -> io::Result<FolderEntry> {
        let found = match fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(FolderEntry::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        Ok(
            match SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) {
                SFlag::S_IFDIR => FolderEntry::Folder,
                SFlag::S_IFREG => FolderEntry::File,
                _ => FolderEntry::Other,
            },
        )
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
        names
            .filter(|name| !matches!(name, Ok(name) if name == "." || name == ".."))
            .collect()
    }
}
