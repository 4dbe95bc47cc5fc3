//! A folder that files are put into: by names one below the other, each opened from the one above, links never followed.
//! So nothing is written outside, whatever somebody in the sandbox changes meanwhile.

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
pub(super) struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// The client names it, so links on the way to it are followed; it is made if it is missing.
    pub(super) fn make(path: &Path) -> Result<Self, TransferError> {
        std::fs::create_dir_all(path).map_err(|error| TransferError::io("making the folder", path, error))?;
        let handle = open(path, FOLDER, Mode::empty());
        let handle = handle.map_err(|error| TransferError::io("opening the folder", path, error.into()))?;
        Ok(Self { handle, path: path.to_owned() })
    }

    /// The folder of this name within this one; made if it is missing, never a link.
    pub(super) fn folder(&self, name: &Path) -> Result<Self, TransferError> {
        let path = self.path.join(name);
        let opened = match mkdirat(&self.handle, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {
                openat(&self.handle, name, FOLDER | OFlag::O_NOFOLLOW, Mode::empty())
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(handle) => Ok(Self { handle, path }),
            Err(Errno::ELOOP | Errno::ENOTDIR) => Err(TransferError::Refused(format!(
                "{} is a link or a file; nothing is put into it",
                path.display()
            ))),
            Err(error) => Err(TransferError::io("making the folder", &path, error.into())),
        }
    }

    /// A file of this name, whole or not at all; it takes the place of what had the name, unless that is a folder.
    pub(super) fn put(&self, name: &Path, mode: u32, content: &mut impl Read) -> Result<(), TransferError> {
        let temporary = temporary();
        let path = self.path.join(name);
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        // Ours to write until it is complete; the mask of the process applies to the rest.
        let opened = openat(&self.handle, &temporary, flags, Mode::from_bits_truncate(mode | 0o600));
        let written = opened.map_err(io::Error::from).and_then(|handle| {
            io::copy(content, &mut File::from(handle))?;
            renameat(self.handle.as_fd(), &temporary, self.handle.as_fd(), name).map_err(io::Error::from)
        });
        written.map_err(|error| {
            // What is left behind is told with the error.
            _ = unlinkat(&self.handle, &temporary, UnlinkatFlags::NoRemoveDir);
            match error.kind() {
                io::ErrorKind::InvalidData => TransferError::Refused(format!("{}: {error}", path.display())),
                _ => TransferError::io("writing", &path, error),
            }
        })
    }
}

/// The file that is replaced may have the longest name there is, so its name is no part of this one.
fn temporary() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!(".upload-{}-{number}", std::process::id()))
}
