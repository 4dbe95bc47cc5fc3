//! The file from which the shell reads its side of the protocol ([`super::prompt`]).
//!
//! A sealed memory file that the shell inherits: what the shell starts can read it, which reveals nothing, and cannot change
//! it. Nothing is written to a disk and `/tmp` may be read-only; where `/proc` is missing, it is a file in the server's scratch
//! folder. Ends with its shell: the memory with the last descriptor, the file when this is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};

/// The shell's descriptor of the memory file: above what scripts use, below what bash keeps for itself (255).
pub(super) const SCRIPT_DESCRIPTOR: i32 = 250;

/// A text that one shell reads as often as it likes.
#[derive(Debug)]
pub(super) enum Script {
    /// In memory.
    Memory { shell_end: OwnedFd },
    /// On disk.
    Disk { path: PathBuf },
}

impl Script {
    /// A script for one shell. `name` is unique among the server's sessions.
    pub(super) fn create(text: &str, scratch_dir: &Path, name: &str) -> io::Result<Self> {
        Self::in_memory(text).or_else(|_| Self::on_disk(text, scratch_dir.join(format!("shell-{name}"))))
    }

    fn in_memory(text: &str) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"shell", flags)?);
        file.write_all(text.as_bytes())?;
        // A bash that is interrupted while it reads a line runs the rest of it: the path alone must start nothing.
        fchmod(&file, Mode::S_IRUSR)?;
        let seals =
            SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        // Opening it again needs /proc, exactly as the shell will.
        let shell_end = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into();
        Ok(Self::Memory { shell_end })
    }

    pub(super) fn on_disk(text: &str, path: PathBuf) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(&path)?;
        let script = Self::Disk { path };
        file.write_all(text.as_bytes())?;
        Ok(script)
    }

    /// What the shell must inherit as [`SCRIPT_DESCRIPTOR`]. `None` if it reads a file on disk.
    pub(super) fn shell_end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Memory { shell_end } => Some(shell_end.as_fd()),
            Self::Disk { .. } => None,
        }
    }

    /// Its name in the shell.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Memory { .. } => format!("/proc/self/fd/{SCRIPT_DESCRIPTOR}").into(),
            Self::Disk { path } => path.clone(),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Self::Disk { path } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
