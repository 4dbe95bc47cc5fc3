//! The file from which the shell reads a command.
//!
//! A memory file that the shell inherits, so that nothing is written to a disk, nothing is left behind and `/tmp` may be
//! read-only; where `/proc` is missing, a file in the server's scratch folder. Ends with its shell: the memory with the
//! last descriptor, the file when this is dropped.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// The shell's descriptor of the memory file: above what scripts use, below what bash keeps for itself (255).
pub(super) const SCRIPT_DESCRIPTOR: i32 = 250;

/// Where the next command is written.
#[derive(Debug)]
pub(super) enum Script {
    /// In memory; `shell_end` cannot write.
    Memory { file: File, shell_end: OwnedFd },
    /// On disk.
    Disk { file: File, path: PathBuf },
}

impl Script {
    /// A script for one shell. `name` is unique among the server's sessions.
    pub(super) fn create(scratch_dir: &Path, name: &str) -> io::Result<Self> {
        Self::in_memory().or_else(|_| Self::on_disk(scratch_dir.join(format!("command-{name}"))))
    }

    fn in_memory() -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let (soft, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
        if soft <= SCRIPT_DESCRIPTOR as u64 {
            return Err(io::Error::other("too few descriptors are allowed"));
        }
        let file = File::from(memfd_create(c"command", MFdFlags::MFD_CLOEXEC)?);
        // Opening it anew needs /proc, exactly as the shell will.
        let shell_end = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into();
        Ok(Self::Memory { file, shell_end })
    }

    pub(super) fn on_disk(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self::Disk { file, path })
    }

    /// What the shell must inherit as [`SCRIPT_DESCRIPTOR`].
    pub(super) fn shell_end(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Memory { shell_end, .. } => Some(shell_end.as_fd()),
            Self::Disk { .. } => None,
        }
    }

    /// Its name in the shell.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Memory { .. } => format!("/proc/self/fd/{SCRIPT_DESCRIPTOR}").into(),
            Self::Disk { path, .. } => path.clone(),
        }
    }

    /// Replaces the text. Called only at a prompt: bash has read its last script whole by then, and the others are
    /// done with theirs.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        let (Self::Memory { file, .. } | Self::Disk { file, .. }) = self;
        file.write_all_at(text.as_bytes(), 0)?;
        // In this order: a page that is given back and taken again costs more than the whole command.
        file.set_len(text.len() as u64)
    }

    /// Takes the text away from whoever else can read it, as all can that the shell has started.
    pub(super) fn wipe(&self) {
        let (Self::Memory { file, .. } | Self::Disk { file, .. }) = self;
        if let Err(error) = file.set_len(0) {
            tracing::warn!(%error, "emptying a script");
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.wipe();
        if let Self::Disk { path, .. } = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
