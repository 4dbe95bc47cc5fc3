//! The file with the text of a long command, which the shell reads at once.
//!
//! It is a memory file that only the server can write, through its mapping, because of the seals.
//! Other processes of the user can read it, so it never contains injected variables. `/proc` and
//! Linux 5.1 are required. Without them, a command goes through the [channel](super::channel).
//!
//! The shell reads it only between its *ready* and the end of a command, so it is never written
//! while it is read.

// A file with these seals can only be written through a mapping that existed before.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::raw::c_void;
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{Mode, fchmod};

/// The shell's descriptor of the file, next to the [script](super::script)'s.
pub(super) const DESCRIPTOR: i32 = 249;

/// The path for the shell.
pub(super) const PATH: &str = "/proc/self/fd/249";

/// Size of the file. bash reads all of it for each command, and most are shorter than a tenth.
const FILE_BYTES: NonZeroUsize = NonZeroUsize::new(32 * 1024).unwrap();

/// The command file of one shell.
#[derive(Debug)]
pub(super) struct CommandFile(Option<MappedFile>);

impl CommandFile {
    /// Creates an empty file.
    pub(super) fn create() -> Self {
        let file = MappedFile::create();
        if let Err(error) = &file {
            tracing::debug!(
                error = error as &dyn std::error::Error,
                "cannot create the command file"
            );
        }
        Self(file.ok())
    }

    /// Returns the file that the shell must inherit as [`DESCRIPTOR`], if there is one.
    pub(super) fn shell_end(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|file| file.shell_end.as_fd())
    }

    /// Makes every command go through the channel.
    pub(super) fn close(&mut self) {
        self.0 = None;
    }

    /// Replaces the start of the file. Returns `false` if there is no file or `code` is too long.
    /// The code must not continue after its end.
    pub(super) fn write(&mut self, code: &str) -> bool {
        match &mut self.0 {
            Some(file) if code.len() <= FILE_BYTES.get() => {
                file.write(code.as_bytes());
                true
            }
            _ => false,
        }
    }
}

#[derive(Debug)]
struct MappedFile {
    bytes: NonNull<c_void>,
    shell_end: File,
}

// SAFETY: the mapping belongs to this value only, and is accessed through `&mut self`.
unsafe impl Send for MappedFile {}

impl MappedFile {
    fn create() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create(c"command", flags)?);
        // bash refuses files with many NUL bytes.
        file.write_all(&[b'\n'; FILE_BYTES.get()])?;
        fchmod(&file, Mode::S_IRUSR)?;
        // Reopening requires /proc, as in the shell.
        let shell_end = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        // SAFETY: a new mapping at an address that the kernel chooses. The file cannot shrink.
        let bytes = unsafe {
            mmap(
                None,
                FILE_BYTES,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                &file,
                0,
            )
        }?;
        let mapped = Self { bytes, shell_end };
        let seals = SealFlag::F_SEAL_FUTURE_WRITE
            | SealFlag::F_SEAL_GROW
            | SealFlag::F_SEAL_SHRINK
            | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(mapped)
    }

    fn write(&mut self, code: &[u8]) {
        // SAFETY: the mapping is longer than `code`, and no reference to it exists. Other processes
        // only read it.
        unsafe {
            self.bytes
                .cast::<u8>()
                .copy_from_nonoverlapping(NonNull::from(code).cast(), code.len());
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: no reference to the mapping exists.
        let _ = unsafe { munmap(self.bytes, FILE_BYTES.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use nix::fcntl::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn only_the_mapping_can_change_the_file() {
        let mut file = MappedFile::create().unwrap();
        file.write(b"code");
        let path = format!("/proc/self/fd/{}", file.shell_end.as_raw_fd());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        file.shell_end.set_permissions(mode).unwrap();
        let mut writer = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        assert!(writer.write_all(b"forged").is_err());
        assert!(writer.set_len(0).is_err());
        assert!(writer.set_len(1 << 20).is_err());
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        assert!(fallocate(&writer, hole, 0, 4096).is_err());
        let write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, which must not be created.
        assert!(
            unsafe { mmap(None, FILE_BYTES, write, MapFlags::MAP_SHARED, &writer, 0) }.is_err()
        );
        assert!(std::fs::read_to_string(path).unwrap().starts_with("code\n"));
    }

    #[test]
    fn code_that_is_too_long_is_not_written() {
        let mut file = CommandFile::create();
        assert!(file.write(&"x".repeat(FILE_BYTES.get())));
        assert!(!file.write(&"x".repeat(FILE_BYTES.get() + 1)));
        assert!(!CommandFile(None).write("x"));
    }
}
