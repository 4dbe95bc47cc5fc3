//! The file with the shell's side of the protocol ([`super::prompt`]).
//!
//! It is a sealed memory file that the shell inherits. Commands can read it, which discloses
//! nothing, but not change it. Nothing is written to the disk, and `/tmp` may be read-only.
//! Requires `/proc`, without which no process of a command could be found either.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};

/// The shell's descriptor of the file: above the descriptors of scripts, and below 255, which bash
/// uses.
pub(super) const SCRIPT_DESCRIPTOR: i32 = 250;

/// The line to type, which runs the script.
pub(super) const SCRIPT_LINE: &str = ". /proc/self/fd/250\n";

/// `MFD_NOEXEC_SEAL`, which nix lacks. With `vm.memfd_noexec=2`, no file is created without it.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(0x8);

/// Creates a file that the shell must inherit as [`SCRIPT_DESCRIPTOR`].
pub(super) fn create_script(text: &str) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Linux before 6.3 does not know the flag.
    let created = match memfd_create(c"shell", flags | NOEXEC_SEAL) {
        Err(Errno::EINVAL) => memfd_create(c"shell", flags),
        created => created,
    };
    let mut file = File::from(created?);
    file.write_all(text.as_bytes())?;
    // A bash that is interrupted while it reads the line runs the rest of it, so the file must not
    // be executable.
    fchmod(&file, Mode::S_IRUSR)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    // The shell's descriptor is read-only.
    Ok(File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))?.into())
}
