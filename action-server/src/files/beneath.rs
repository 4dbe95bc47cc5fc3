//! Opening what is beneath a folder, and nothing else: the kernel sees to it on every step, also when folders and links are
//! exchanged meanwhile. What is opened is only held (`O_PATH`), not read.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

/// The kernel gives up on a path with `..` when anything on the machine is renamed meanwhile, and says to ask again.
const MAX_ATTEMPTS: usize = 256;

/// What is done about symbolic links. One that leads out is an error (`EXDEV`) either way, and so is one of /proc that
/// leads anywhere at all (`ELOOP`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    /// `ELOOP` on the way; the last is opened itself.
    Refused,
}

/// An empty path is the folder itself.
pub(super) fn open(folder: impl AsFd, path: &Path, flags: OFlag, links: Links) -> nix::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
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
            ended => return ended,
        }
    }
    openat2(&folder, path, how)
}
