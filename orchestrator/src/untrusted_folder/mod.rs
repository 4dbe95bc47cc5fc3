//! Folders of this machine that a sandbox can change while they are read or written.
//!
//! A program in the sandbox can replace a folder by a link between two uses of a path. So a path is
//! resolved once ([`lookup`]), and everything below it is opened relative to a descriptor, one
//! component at a time, without following links ([`walk`]).
//!
//! `openat2` would resolve whole paths in the kernel. It is not used: where seccomp cannot inspect
//! its arguments, it fails, as under systemd's `RestrictSUIDSGID=`.

mod copy;
mod lookup;
mod walk;

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, openat};

pub(crate) use copy::copy_contents;
pub(crate) use lookup::{NamedPath, open_beneath};
pub(crate) use walk::{FolderWalk, Step};

/// Maximum depth of a folder. Each level of a walk holds a descriptor.
const MAX_LEVELS: usize = 128;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// A file, a folder, a link or a special file. It is not open for reading, so that no FIFO blocks
/// and no device reacts.
#[derive(Debug)]
pub(crate) struct Node {
    /// Opened with `O_PATH`: stays the same file, whatever happens to its path.
    handle: File,
    metadata: Metadata,
}

impl Node {
    /// Opens an entry of a folder. A link is opened itself.
    fn open(folder: impl AsFd, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = File::from(openat(folder, name, flags, Mode::empty())?);
        Ok(Self {
            metadata: handle.metadata()?,
            handle,
        })
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Opens a folder to list it.
    pub(crate) fn open_folder(&self) -> io::Result<OwnedFd> {
        Ok(openat(&self.handle, ".", FOLDER, Mode::empty())?)
    }

    /// Opens a regular file to read it. Fails for everything else.
    pub(crate) fn open_file(&self) -> io::Result<File> {
        match self.metadata.is_file() {
            true => self.reopen(OFlags::RDONLY),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            )),
        }
    }

    /// Opens a file to write it. Fails for a FIFO that is not read.
    pub(crate) fn open_to_write(&self) -> io::Result<File> {
        self.reopen(OFlags::WRONLY)
    }

    /// Non-blocking: a FIFO may have no reader, and another process may have a lease on the file.
    fn reopen(&self, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(rustix::fs::open(
            path_of(&self.handle),
            flags,
            Mode::empty(),
        )?))
    }

    /// Returns the target of a link.
    pub(crate) fn link_target(&self) -> io::Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.handle, "", Vec::new())?;
        Ok(std::ffi::OsString::from_vec(target.into_bytes()).into())
    }
}

/// Opens the folder of this name. Fails if it is a link.
pub(crate) fn open_folder(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())
}

/// A path that leads to an open file or folder, wherever that is now.
pub(crate) fn path_of(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

#[cfg(test)]
mod testing;
