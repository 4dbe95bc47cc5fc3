//! Opens files beneath a folder. The kernel enforces it on every step, even if folders and links
//! are exchanged concurrently. Files are opened with `O_PATH` and not read.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// The kernel aborts the lookup of a path with `..` with EAGAIN when anything on the machine is
/// renamed concurrently.
const MAX_ATTEMPTS: usize = 256;

/// Treatment of symbolic links. A link that leads out of the folder always fails (`EXDEV`), as does
/// a magic link of `/proc` (`ELOOP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    /// Fails with `ELOOP`, except that the last component itself is opened.
    Refused,
}

/// Opens `path`. An empty path is the folder itself.
pub(super) fn open(
    folder: impl AsFd,
    path: &Path,
    flags: OFlag,
    links: Links,
) -> nix::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let (more_flags, resolve) = match links {
        Links::Followed => (OFlag::empty(), ResolveFlag::RESOLVE_NO_MAGICLINKS),
        Links::Refused => (OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_NO_SYMLINKS),
    };
    let how = OpenHow::new()
        .flags(flags | more_flags | OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(resolve | ResolveFlag::RESOLVE_BENEATH);
    for _ in 1..MAX_ATTEMPTS {
        match openat2(&folder, path, how) {
            Err(Errno::EAGAIN) => {}
            result => return result,
        }
    }
    openat2(&folder, path, how)
}
