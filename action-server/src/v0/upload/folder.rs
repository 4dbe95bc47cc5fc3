//! A folder that files are written to. Each name is opened relative to its parent folder without
//! following links, so that nothing is written outside, even if the sandbox changes folders
//! concurrently.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::v0::transfer_error::TransferError;

const FOLDER: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC);

/// An open folder.
pub(super) struct UploadFolder {
    handle: OwnedFd,
    path: PathBuf,
}

impl UploadFolder {
    /// Opens a folder that the client has named. Links are followed, and the folder is created if
    /// it does not exist.
    pub(super) fn create(path: &Path) -> Result<Self, TransferError> {
        std::fs::create_dir_all(path)
            .map_err(|error| TransferError::io("create the folder", path, error))?;
        let handle = open(path, FOLDER, Mode::empty());
        let handle =
            handle.map_err(|error| TransferError::io("open the folder", path, error.into()))?;
        Ok(Self {
            handle,
            path: path.to_owned(),
        })
    }

    /// Opens a folder in this one without following links. It is created if it does not exist.
    pub(super) fn folder(&self, name: &Path) -> Result<Self, TransferError> {
        let path = self.path.join(name);
        let opened = match mkdirat(&self.handle, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => openat(
                &self.handle,
                name,
                FOLDER | OFlag::O_NOFOLLOW,
                Mode::empty(),
            ),
            Err(error) => Err(error),
        };
        match opened {
            Ok(handle) => Ok(Self { handle, path }),
            Err(Errno::ELOOP | Errno::ENOTDIR) => Err(TransferError::Refused(format!(
                "{} is a link or a file, not a folder",
                path.display()
            ))),
            Err(error) => Err(TransferError::io("create the folder", &path, error.into())),
        }
    }

    /// Writes a file atomically. It replaces an existing file or link, but not a folder.
    pub(super) fn put(
        &self,
        name: &Path,
        mode: u32,
        content: &mut impl Read,
    ) -> Result<(), TransferError> {
        let temporary = temporary_name();
        let path = self.path.join(name);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        // Writable for the server until it is complete. The umask applies to the other permissions.
        let opened = openat(
            &self.handle,
            &temporary,
            flags,
            Mode::from_bits_truncate(mode | 0o600),
        );
        let written = opened.map_err(io::Error::from).and_then(|handle| {
            io::copy(content, &mut File::from(handle))?;
            renameat(self.handle.as_fd(), &temporary, self.handle.as_fd(), name)
                .map_err(io::Error::from)
        });
        written.map_err(|error| {
            // If this fails, the temporary file remains; the error is reported anyway.
            _ = unlinkat(&self.handle, &temporary, UnlinkatFlags::NoRemoveDir);
            match error.kind() {
                io::ErrorKind::InvalidData => {
                    TransferError::Refused(format!("{}: {error}", path.display()))
                }
                _ => TransferError::io("write", &path, error),
            }
        })
    }
}

/// The name does not contain that of the target, which may have the maximum length.
fn temporary_name() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!(".upload-{}-{number}", std::process::id()))
}
