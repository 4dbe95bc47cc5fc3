//! Removes folders whose content a stranger has made.
//!
//! [`std::fs::remove_dir_all`] recurses into each folder. Some ten thousand nested folders, which
//! take a sandbox a second, overflow the stack and so end the program, or use up its descriptors.
//! The crates `remove_dir_all` and `cap-primitives` recurse as well, and `walkdir` fails at paths
//! longer than 4,096 bytes.

use std::ffi::CStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Maximum depth of recursion. Each level holds a descriptor and a kibibyte of stack.
const MAX_LEVELS: usize = 64;

/// What to do with folders that their mode protects against removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectedFolders {
    /// Fail, as `rm -r` does.
    Keep,
    /// Give their owner all rights, and remove them. Some tools leave read-only folders behind,
    /// such as Go's module cache.
    Remove,
}

/// Removes a folder with its content, however deep it is. Links are not followed, also if another
/// program replaces a folder by one meanwhile. Blocks.
///
/// # Errors
/// [`ErrorKind::NotFound`] if it does not exist, [`ErrorKind::NotADirectory`] if it is a link or a
/// file. After any error, a part may be removed.
pub fn remove_folder(path: &Path, protected: ProtectedFolders) -> io::Result<()> {
    let remover = Remover {
        root: open(CWD, path, protected)?,
        protected,
    };
    let mut moved = 0;
    loop {
        let before = moved;
        let root = open(&remover.root, c".", protected)?;
        remover.empty(root, MAX_LEVELS, &mut moved)?;
        if moved == before {
            break;
        }
    }
    Ok(rustix::fs::rmdir(path)?)
}

struct Remover {
    root: OwnedFd,
    protected: ProtectedFolders,
}

impl Remover {
    /// Removes the content of a folder. Moves folders below the last level to the root, and counts
    /// them.
    fn empty(&self, folder: OwnedFd, levels: usize, moved: &mut u64) -> io::Result<()> {
        let mut entries = Dir::new(folder)?;
        while let Some(entry) = entries.read().transpose()? {
            let (folder, name) = (entries.fd()?, entry.file_name());
            if name == c"." || name == c".." {
                continue;
            }
            match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // Some file systems report a folder as EPERM.
                Err(error @ (Errno::ISDIR | Errno::PERM)) => {
                    match self.remove_subfolder(folder, name, levels, moved) {
                        Err(found) if found.kind() == ErrorKind::NotADirectory => {
                            return Err(error.into());
                        }
                        removed => removed?,
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn remove_subfolder(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        levels: usize,
        moved: &mut u64,
    ) -> io::Result<()> {
        let Some(levels) = levels.checked_sub(1) else {
            return self.move_to_root(parent, name, moved);
        };
        let folder = match open(parent, name, self.protected) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            folder => folder?,
        };
        self.empty(folder, levels, moved)?;
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves a folder to the root, where the next round finds it.
    fn move_to_root(&self, parent: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> io::Result<()> {
        if self.protected == ProtectedFolders::Remove {
            // A move changes the folder's own entry for its parent.
            make_accessible(open_path(parent, name)?.as_fd())?;
        }
        loop {
            let target = format!(".removed-{moved}");
            *moved += 1;
            let flags = RenameFlags::NOREPLACE;
            let renamed =
                rustix::fs::renameat_with(parent, name, &self.root, target.as_str(), flags);
            match renamed {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Opens a folder that is not a link. Makes it accessible if it is protected.
fn open(
    parent: impl AsFd,
    name: impl rustix::path::Arg + Copy,
    protected: ProtectedFolders,
) -> io::Result<OwnedFd> {
    if protected == ProtectedFolders::Remove {
        make_accessible(open_path(&parent, name)?.as_fd())?;
    }
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::RDONLY;
    rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(not_followed)
}

/// Opens a folder, also without the right to read it.
fn open_path(parent: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::PATH;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(not_followed)
}

/// Converts the error of a link: what it leads to is not removed.
fn not_followed(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => ErrorKind::NotADirectory.into(),
        error => error.into(),
    }
}

/// Gives the owner of a folder all rights to it, unless another user owns it.
fn make_accessible(folder: BorrowedFd<'_>) -> io::Result<()> {
    let found = rustix::fs::fstat(folder)?;
    if Mode::from_raw_mode(found.st_mode).contains(Mode::RWXU) {
        return Ok(());
    }
    // `fchmod` refuses a descriptor of `open_path`.
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    match rustix::fs::chmod(path, Mode::RWXU) {
        Err(Errno::PERM) => Ok(()),
        changed => Ok(changed?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Makes folders that are nested so deep that no path reaches the last one.
    fn nest(root: &Path, levels: usize, mode: Mode) {
        let mut folder = open(CWD, root, ProtectedFolders::Keep).unwrap();
        for _ in 0..levels {
            rustix::fs::mkdirat(&folder, "d", Mode::RWXU).unwrap();
            let inner = open(&folder, "d", ProtectedFolders::Keep).unwrap();
            rustix::fs::mkdirat(&inner, "sibling", Mode::RWXU).unwrap();
            rustix::fs::fchmod(&folder, mode).unwrap();
            folder = inner;
        }
    }

    #[test]
    fn folder_is_removed_however_deep_it_is() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("deep");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(".removed-0"), "").unwrap();
        fs::create_dir_all(path.join(".removed-1/x")).unwrap();
        nest(&path, 4_000, Mode::RWXU);
        // As on the threads of a server.
        let removing = std::thread::Builder::new().stack_size(128 << 10);
        let removing = removing.spawn({
            let path = path.clone();
            move || remove_folder(&path, ProtectedFolders::Keep)
        });
        removing.unwrap().join().unwrap().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        fs::create_dir_all(at("kept/inner")).unwrap();
        fs::create_dir_all(at("removed/inner")).unwrap();
        symlink(at("kept"), at("removed/inner/link")).unwrap();
        symlink(at("kept"), at("link")).unwrap();
        remove_folder(&at("removed"), ProtectedFolders::Remove).unwrap();
        let refused = remove_folder(&at("link"), ProtectedFolders::Remove).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotADirectory);
        let missing = remove_folder(&at("removed"), ProtectedFolders::Remove).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(at("kept/inner").exists());
    }

    #[test]
    fn protected_folders_are_removed_on_request() {
        if rustix::process::geteuid().is_root() {
            // Root may do this in any folder: as another user, in a process of its own.
            let test = std::env::current_exe().unwrap();
            let name = "tests::protected_folders_are_removed_on_request";
            let copy = tempfile::Builder::new()
                .permissions(fs::Permissions::from_mode(0o755))
                .tempdir_in("/tmp")
                .unwrap();
            let copied = copy.path().join("test");
            fs::copy(test, &copied).unwrap();
            let ended = std::process::Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(copied)
                .args(["--exact", name])
                .env("TMPDIR", "/tmp")
                .status()
                .unwrap();
            assert!(ended.success());
            return;
        }
        let readable = Mode::RUSR | Mode::XUSR;
        for (levels, mode) in [
            (1, readable),
            (200, readable),
            (1, Mode::RUSR),
            (1, Mode::empty()),
        ] {
            let outer = tempfile::tempdir().unwrap();
            let path = outer.path().join("deep");
            fs::create_dir(&path).unwrap();
            nest(&path, levels, mode);
            let refused = remove_folder(&path, ProtectedFolders::Keep).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
            remove_folder(&path, ProtectedFolders::Remove).unwrap();
        }
    }
}
