//! The file with the shell's side of the protocol ([`super::prompt`]).
//!
//! It is a sealed memory file that the shell inherits. Commands can read it, which discloses
//! nothing, but not change it. Nothing is written to the disk, and `/tmp` may be read-only. Without
//! `/proc`, a file in the scratch folder of the server is used, which is removed on drop.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};

/// The shell's descriptor of the memory file: above those of scripts, and below the one that bash
/// uses (255).
pub(super) const SCRIPT_DESCRIPTOR: i32 = 250;

/// A script that one shell reads repeatedly.
#[derive(Debug)]
pub(super) enum ShellScript {
    /// In memory.
    Memory { shell_end: OwnedFd },
    /// On disk.
    Disk { path: PathBuf },
}

impl ShellScript {
    /// Creates the script of one shell. `name` is unique among the sessions.
    pub(super) fn create(text: &str, scratch_dir: &Path, name: &str) -> io::Result<Self> {
        Self::in_memory(text)
            .or_else(|_| Self::on_disk(text, scratch_dir.join(format!("shell-{name}"))))
    }

    fn in_memory(text: &str) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"shell", flags)?);
        file.write_all(text.as_bytes())?;
        // A bash that is interrupted while it reads the line runs the rest of it, so the file must
        // not be executable.
        fchmod(&file, Mode::S_IRUSR)?;
        let seals = SealFlag::F_SEAL_WRITE
            | SealFlag::F_SEAL_GROW
            | SealFlag::F_SEAL_SHRINK
            | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        // Reopening requires /proc, as in the shell.
        let shell_end = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into();
        Ok(Self::Memory { shell_end })
    }

    pub(super) fn on_disk(text: &str, path: PathBuf) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&path)?;
        let script = Self::Disk { path };
        file.write_all(text.as_bytes())?;
        Ok(script)
    }

    /// Returns the file that the shell must inherit as [`SCRIPT_DESCRIPTOR`]. `None` if it is on
    /// the disk.
    pub(super) fn shell_end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Memory { shell_end } => Some(shell_end.as_fd()),
            Self::Disk { .. } => None,
        }
    }

    /// Returns the path for the shell.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Memory { .. } => format!("/proc/self/fd/{SCRIPT_DESCRIPTOR}").into(),
            Self::Disk { path } => path.clone(),
        }
    }
}

impl Drop for ShellScript {
    fn drop(&mut self) {
        if let Self::Disk { path } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
