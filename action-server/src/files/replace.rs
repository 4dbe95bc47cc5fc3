//! Puts new content in a file's place, whole or not at all where the folder allows it. Mode, owner and hard links stay.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::unistd::{AccessFlags, access};

use super::error::FileError;
use super::open;

/// `target` is behind all links (see `path::follow`); folders on the way to a new file are made.
pub(super) fn replace(target: &Path, content: &[u8]) -> Result<(), FileError> {
    let existing = match fs::metadata(target) {
        Ok(metadata) if metadata.is_file() => Some(metadata),
        Ok(metadata) if metadata.is_dir() => return Err(FileError::Directory(target.to_owned())),
        Ok(_) => return Err(FileError::Special(target.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(FileError::io("looking at", target, error)),
    };
    match existing {
        None => {
            make_parents(target)?;
            by_rename(target, content, None).map_err(|error| FileError::io("writing", target, error))
        }
        Some(metadata) => over_existing(target, content, &metadata),
    }
}

/// Renaming over it needs only the folder's permission, so the file's own is asked for first. Where a rename cannot
/// keep what the file is (hard links, an owner that we may not give, a file that is a mount, a folder that we may not
/// write to) its bytes are written in place.
fn over_existing(target: &Path, content: &[u8], metadata: &Metadata) -> Result<(), FileError> {
    access(target, AccessFlags::W_OK).map_err(|errno| FileError::io("writing", target, errno.into()))?;
    if metadata.nlink() > 1 {
        return in_place(target, content);
    }
    match by_rename(target, content, Some(metadata)) {
        Ok(()) => Ok(()),
        Err(error) if a_write_in_place_may_do(&error) => in_place(target, content),
        Err(error) => Err(FileError::io("writing", target, error)),
    }
}

fn a_write_in_place_may_do(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices)
}

fn by_rename(target: &Path, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    let (mut file, name) = Temporary::beside(target)?;
    file.write_all(content)?;
    if let Some(like) = like {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        // After the owner, because changing that clears bits of the mode.
        file.set_permissions(Permissions::clone(&like.permissions()))?;
    }
    name.rename_to(target)
}

fn in_place(target: &Path, content: &[u8]) -> Result<(), FileError> {
    let (mut file, _) = open::regular_for_writing(target)?;
    let written = file.write_all(content).and_then(|()| file.set_len(content.len() as u64));
    written.map_err(|error| FileError::io("writing", target, error))
}

fn make_parents(target: &Path) -> Result<(), FileError> {
    match target.parent() {
        Some(parent) => {
            fs::create_dir_all(parent).map_err(|error| FileError::io("making the folder", parent, error))
        }
        None => Ok(()),
    }
}

/// A file that is removed again unless it takes its place.
struct Temporary(PathBuf);

impl Temporary {
    /// The file that is replaced may have the longest name there is, so its name is no part of this one.
    fn beside(target: &Path) -> io::Result<(File, Self)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = target.with_file_name(format!(".glovebox-{}-{count}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path)?;
        Ok((file, Self(path)))
    }

    fn rename_to(self, target: &Path) -> io::Result<()> {
        fs::rename(&self.0, target)?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Nothing better can be done about a folder that lets files be made and not removed.
        _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn mode_and_hard_links_stay_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "long content").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o4751)).unwrap();
        replace(&file, b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o4751);
        fs::hard_link(&file, &link).unwrap();
        replace(&file, b"x").unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"x");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn new_files_get_folders_and_the_usual_mode() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a/b/file");
        replace(&file, b"x").unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode(), fs::metadata(&other).unwrap().mode());
    }

    #[test]
    fn folders_and_pipes_are_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(replace(dir.path(), b""), Err(FileError::Directory(_))));
        assert!(matches!(replace(Path::new("/dev/null"), b""), Err(FileError::Special(_))));
    }
}
