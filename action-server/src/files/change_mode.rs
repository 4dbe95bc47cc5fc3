//! Changes the mode of a file, or of all files in a folder. Links in the folder are skipped: every
//! step opens a name without following links, so that concurrent changes cannot lead out of the
//! folder.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode as Bits, SFlag, fstat};
use protocol::sandbox_api::{ChangeModeRequest, FileMode, ModeChanged};

use super::Files;
use super::error::FileError;
use super::stop::StopSignal;

/// Maximum depth. Every level uses a descriptor.
const MAX_DEPTH: usize = 128;

pub(crate) fn change_mode(
    files: &Files,
    path: &Path,
    request: &ChangeModeRequest,
    stop: &StopSignal,
) -> Result<ModeChanged, FileError> {
    let failed = |error| FileError::io("set the mode of", path, error);
    let found = files.resolve(path)?;
    let file = openat(
        AT_FDCWD,
        found.path(),
        OFlag::O_PATH | OFlag::O_CLOEXEC,
        Bits::empty(),
    );
    let file = file.map_err(|errno| failed(errno.into()))?;
    let mut changed = 0;
    let depth = if request.recursive { MAX_DEPTH } else { 0 };
    set(&file, request.mode, depth, &mut changed, stop).map_err(failed)?;
    Ok(ModeChanged { changed })
}

/// Changes the contents of a folder first, because its new mode may deny access.
fn set(
    resolved: &OwnedFd,
    mode: FileMode,
    depth: usize,
    changed: &mut u64,
    stop: &StopSignal,
) -> io::Result<()> {
    if stop.is_set() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let kind = SFlag::from_bits_truncate(fstat(resolved)?.st_mode & SFlag::S_IFMT.bits());
    if kind == SFlag::S_IFLNK {
        return Ok(());
    }
    if let (SFlag::S_IFDIR, Some(deeper)) = (kind, depth.checked_sub(1)) {
        if deeper == 0 {
            return Err(io::Error::other("the folder has more than 128 levels"));
        }
        for child in children(resolved)? {
            match child {
                Ok(child) => set(&child, mode, deeper, changed, stop)?,
                // Removed concurrently.
                Err(nix::errno::Errno::ENOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    // Only a path through the descriptor works for a file that may not be read.
    fs::set_permissions(
        format!("/proc/self/fd/{}", resolved.as_raw_fd()),
        Permissions::from_mode(mode.bits()),
    )?;
    *changed += 1;
    Ok(())
}

fn children(resolved: &OwnedFd) -> io::Result<impl Iterator<Item = nix::Result<OwnedFd>>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let listed = openat(resolved.as_fd(), ".", flags, Bits::empty())?;
    let resolved = resolved.try_clone()?;
    Ok(Dir::from_fd(listed)?.into_iter().filter_map(move |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => return Some(Err(errno)),
        };
        let name = entry.file_name();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let is_itself = matches!(name.to_bytes(), b"." | b"..");
        (!is_itself).then(|| openat(resolved.as_fd(), name, flags, Bits::empty()))
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn mode_of_all_files_in_a_folder_is_set_but_not_through_links() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "").unwrap();
        fs::write(other.path().join("file"), "").unwrap();
        symlink(other.path(), at("a/folder")).unwrap();
        symlink(other.path().join("file"), at("a/link")).unwrap();
        let modes = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let before = (modes(other.path()), modes(&other.path().join("file")));
        let request = ChangeModeRequest {
            path: String::new(),
            mode: FileMode::from_bits(0o750),
            recursive: true,
        };
        assert_eq!(
            change_mode(
                &Files::unconfined(),
                &at("a"),
                &request,
                &StopSignal::never()
            )
            .unwrap()
            .changed,
            3
        );
        assert_eq!(
            [modes(&at("a")), modes(&at("a/b")), modes(&at("a/b/file"))],
            [0o750; 3]
        );
        assert_eq!(
            (modes(other.path()), modes(&other.path().join("file"))),
            before
        );
        let one = ChangeModeRequest {
            mode: FileMode::from_bits(0o700),
            recursive: false,
            ..request
        };
        assert_eq!(
            change_mode(&Files::unconfined(), &at("a"), &one, &StopSignal::never())
                .unwrap()
                .changed,
            1
        );
        assert_eq!([modes(&at("a")), modes(&at("a/b"))], [0o700, 0o750]);
    }
}
