//! Copies a folder while it may change.

use std::ffi::OsStr;
use std::fs::{File, FileTimes, Metadata};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::{FolderWalk, Node, Step, open_folder};

/// Number of bytes after which a copy checks whether it was cancelled.
const CHUNK_BYTES: u64 = 32 << 20;

/// Copies what is in a folder into another one, as `cp -a` does: with owners as far as permitted,
/// modes, times and links. Setuid and setgid bits are lost: nothing of a sandbox gets them on the
/// host. Hard links become files. Leaves out FIFOs, sockets, devices and extended attributes. Ends
/// with [`io::ErrorKind::Interrupted`] when cancelled.
///
/// # Errors
/// One of the folders is a link; something cannot be read or written; the limits of [`FolderWalk`].
/// The copied part stays.
pub(crate) fn copy_contents(
    from: &Path,
    to: &Path,
    cancelled: &CancellationToken,
) -> io::Result<()> {
    let [from, to] = [from, to].map(|path| open_folder(CWD, path.as_os_str()));
    let (from, to) = (File::from(from?), File::from(to?));
    let mut open = vec![FolderCopy {
        metadata: from.metadata()?,
        folder: to,
    }];
    for step in FolderWalk::new(from.into())? {
        check(cancelled)?;
        let copied = match step? {
            Step::Leave => open.pop().map_or(Ok(()), |copy| copy.complete()),
            Step::Enter(path, node) => in_parent(&open, &path, |parent, name| {
                parent.create_folder(name, node)
            })
            .map(|copy| open.extend(copy)),
            Step::Denied(path, error) => {
                in_parent(&open, &path, |_, _| Err(error)).map(drop::<Option<()>>)
            }
            Step::Entry(path, node) => in_parent(&open, &path, |parent, name| {
                parent.copy_entry(name, &node, cancelled)
            })
            .map(drop),
        };
        copied?;
    }
    Ok(())
}

/// Calls a function with the copy of an entry's folder and the entry's name, and adds its path to
/// an error.
fn in_parent<'a, T>(
    open: &'a [FolderCopy],
    path: &'a Path,
    copy: impl FnOnce(&'a FolderCopy, &'a OsStr) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let (Some(parent), Some(name)) = (open.last(), path.file_name()) else {
        return Ok(None);
    };
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    copy(parent, name).map(Some).map_err(failed)
}

fn check(cancelled: &CancellationToken) -> io::Result<()> {
    match cancelled.is_cancelled() {
        true => Err(io::Error::new(io::ErrorKind::Interrupted, "cancelled")),
        false => Ok(()),
    }
}

/// The copy of a folder, while its entries are copied.
struct FolderCopy {
    folder: File,
    /// Of the original.
    metadata: Metadata,
}

impl FolderCopy {
    /// Creates a folder with all rights for its owner, because its entries follow.
    fn create_folder(&self, name: &OsStr, node: Node) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.folder, name, Mode::RWXU) {
            // A folder that changes while it is listed may name an entry twice.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = open_folder(&self.folder, name)?.into();
        Ok(Self {
            folder,
            metadata: node.metadata,
        })
    }

    fn copy_entry(
        &self,
        name: &OsStr,
        node: &Node,
        cancelled: &CancellationToken,
    ) -> io::Result<()> {
        let copied = match node.metadata().file_type() {
            kind if kind.is_symlink() => self.copy_link(name, node),
            kind if kind.is_file() => self.copy_file(name, node, cancelled),
            _ => Ok(()),
        };
        match copied {
            // The folder named it twice.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            copied => copied,
        }
    }

    fn copy_link(&self, name: &OsStr, node: &Node) -> io::Result<()> {
        rustix::fs::symlinkat(node.link_target()?, &self.folder, name)?;
        let metadata = node.metadata();
        // Only root can set another owner.
        let (owner, group) = owners(metadata);
        let _ = rustix::fs::chownat(
            &self.folder,
            name,
            Some(owner),
            Some(group),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: metadata.atime(),
                tv_nsec: metadata.atime_nsec(),
            },
            last_modification: Timespec {
                tv_sec: metadata.mtime(),
                tv_nsec: metadata.mtime_nsec(),
            },
        };
        Ok(rustix::fs::utimensat(
            &self.folder,
            name,
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    fn copy_file(
        &self,
        name: &OsStr,
        node: &Node,
        cancelled: &CancellationToken,
    ) -> io::Result<()> {
        let source = node.open_file()?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        let target = File::from(target);
        copy_content(&source, &target, node.metadata().len(), cancelled)?;
        set_attributes(&target, node.metadata(), 0o777)
    }

    /// Sets the attributes of the folder, after all its entries.
    fn complete(&self) -> io::Result<()> {
        set_attributes(&self.folder, &self.metadata, 0o1777)
    }
}

/// Copies the first `length` bytes, and neither holes nor what is appended meanwhile.
fn copy_content(
    mut source: &File,
    mut target: &File,
    length: u64,
    cancelled: &CancellationToken,
) -> io::Result<()> {
    target.set_len(length)?;
    let mut end = 0;
    while end < length {
        let start = match rustix::fs::seek(source, SeekFrom::Data(end)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break, // only a hole follows
            Err(error) => return Err(error.into()),
        };
        end = match rustix::fs::seek(source, SeekFrom::Hole(start)) {
            Ok(end) => end.min(length),
            Err(Errno::NXIO) => break, // was truncated meanwhile
            Err(error) => return Err(error.into()),
        };
        source.seek(io::SeekFrom::Start(start))?;
        target.seek(io::SeekFrom::Start(start))?;
        let mut left = end.saturating_sub(start);
        while left > 0 {
            check(cancelled)?;
            match io::copy(&mut source.take(left.min(CHUNK_BYTES)), &mut target)? {
                0 => return Ok(()), // was truncated meanwhile
                count => left = left.saturating_sub(count),
            }
        }
    }
    Ok(())
}

fn set_attributes(target: &File, original: &Metadata, mode_mask: u32) -> io::Result<()> {
    let (owner, group) = owners(original);
    // Only root can set another owner, and other users only their own groups.
    if rustix::fs::fchown(target, Some(owner), Some(group)).is_err() {
        let _ = rustix::fs::fchown(target, None, Some(group));
    }
    // After the owner, whose change removes bits.
    rustix::fs::fchmod(target, Mode::from_raw_mode(original.mode() & mode_mask))?;
    let (accessed, modified) = (original.accessed()?, original.modified()?);
    target.set_times(
        FileTimes::new()
            .set_accessed(accessed)
            .set_modified(modified),
    )
}

fn owners(metadata: &Metadata) -> (Uid, Gid) {
    (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use super::super::testing::{Found, swap_folder_and_link};
    use super::*;

    fn copy(from: &Path, to: &Path) -> io::Result<()> {
        copy_contents(from, to, &CancellationToken::new())
    }

    #[test]
    fn copy_never_holds_what_a_swapped_link_leads_to() {
        swap_folder_and_link().observe(|root| {
            let target = tempfile::tempdir().unwrap();
            // A file system may list both, of which only one has room for its copy.
            let Ok(()) = copy(root, target.path()) else {
                return Found::Other;
            };
            let copied = target.path().join("folder");
            match copied.symlink_metadata() {
                Ok(found) if found.is_symlink() => Found::Link,
                Ok(_) => {
                    let key = std::fs::read_to_string(copied.join("key")).unwrap_or_default();
                    assert_ne!(key, "secret");
                    Found::Folder
                }
                Err(_) => Found::Other,
            }
        });
    }

    #[test]
    fn copy_keeps_modes_times_links_and_holes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("from").join(name);
        std::fs::create_dir_all(at("read-only/inner")).unwrap();
        std::fs::write(at("read-only/file"), "text").unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let sparse = File::create(at("sparse")).unwrap();
        sparse.set_len(1 << 33).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (1 << 33) - 3).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        for (name, mode) in [
            ("read-only/file", 0o4751),
            ("read-only/inner", 0o700),
            ("read-only", 0o1555),
        ] {
            let file = File::open(at(name)).unwrap();
            std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        let to = folder.path().join("to");
        std::fs::create_dir(&to).unwrap();
        copy(&at(""), &to).unwrap();
        let mut names: Vec<_> = to
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["link", "read-only", "sparse"]);
        assert_eq!(
            to.join("link").read_link().unwrap(),
            PathBuf::from("/etc/passwd")
        );
        assert_eq!(
            std::fs::read_to_string(to.join("read-only/file")).unwrap(),
            "text"
        );
        for (name, mode) in [
            ("read-only/file", 0o751),
            ("read-only/inner", 0o700),
            ("read-only", 0o1555),
        ] {
            let found = to.join(name).metadata().unwrap();
            assert_eq!(
                (found.mode() & 0o7777, found.modified().unwrap()),
                (mode, long_ago),
                "{name}"
            );
            assert_eq!(found.uid(), at(name).metadata().unwrap().uid());
        }
        let copied = to.join("sparse").metadata().unwrap();
        assert_eq!(copied.len(), 1 << 33);
        assert!(copied.blocks() < 1 << 12, "{} blocks", copied.blocks());
        // So that the folder can be removed by another user than root.
        for folder in [at("read-only"), to.join("read-only")] {
            std::fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
        }
    }

    #[test]
    fn copy_ends_when_it_is_cancelled_or_its_folder_is_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to, link] = ["from", "to", "link"].map(|name| folder.path().join(name));
        [&from, &to]
            .iter()
            .for_each(|folder| std::fs::create_dir(folder).unwrap());
        symlink(&from, &link).unwrap();
        std::fs::write(from.join("file"), "").unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        let error = copy_contents(&from, &to, &cancelled).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(copy(&link, &to).is_err() && copy(&from, &link).is_err());
        assert_eq!(to.read_dir().unwrap().count(), 0);
    }
}
