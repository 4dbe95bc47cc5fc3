//! Puts new content in a file's place, whole or not at all where the folder allows it. Mode, owner and hard links stay.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};

use nix::unistd::{AccessFlags, access};

use super::error::FileError;
use super::open;
use super::place::Place;
use super::temporary::Temporary;

/// `target` is behind all links (see `path::follow`); folders on the way to a new file are made.
pub(super) fn replace(target: &Place, content: &[u8]) -> Result<(), FileError> {
    match existing(target)? {
        None => {
            let target = target.with_parents()?;
            by_rename(&target, content, None).map_err(|error| FileError::io("writing", target.told(), error))
        }
        Some(metadata) => over_existing(target, content, &metadata),
    }
}

/// The file that is there, if there is one, and it is one that may be replaced.
pub(super) fn existing(target: &Place) -> Result<Option<Metadata>, FileError> {
    let told = target.told();
    let found = target.itself().and_then(|found| Ok((found.metadata()?, found)));
    match found {
        Ok((metadata, _)) if metadata.is_dir() => Err(FileError::Directory(told.to_owned())),
        Ok((metadata, _)) if !metadata.is_file() => Err(FileError::Special(told.to_owned())),
        // Renaming over it needs only the folder's permission, so the file's own is asked for.
        Ok((metadata, found)) => match access(found.path(), AccessFlags::W_OK) {
            Ok(()) => Ok(Some(metadata)),
            Err(errno) => Err(FileError::io("writing", told, errno.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io("looking at", told, error)),
    }
}

/// Where a rename cannot keep what the file is (hard links, an owner that we may not give, a file that is a mount, a
/// folder that we may not write to) its bytes are written in place.
fn over_existing(target: &Place, content: &[u8], metadata: &Metadata) -> Result<(), FileError> {
    if metadata.nlink() > 1 {
        return in_place(target, content);
    }
    match by_rename(target, content, Some(metadata)) {
        Ok(()) => Ok(()),
        Err(error) if a_write_in_place_may_do(&error) => in_place(target, content),
        Err(error) => Err(FileError::io("writing", target.told(), error)),
    }
}

pub(super) fn a_write_in_place_may_do(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices)
}

fn by_rename(target: &Place, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    let (mut file, name) = Temporary::beside(target, 0o666)?;
    file.write_all(content)?;
    if let Some(like) = like {
        become_like(&file, like)?;
    }
    name.rename_to(target)
}

/// Gives `file` the owner and mode of the one that it replaces.
pub(super) fn become_like(file: &File, like: &Metadata) -> io::Result<()> {
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
        fchown(file, Some(like.uid()), Some(like.gid()))?;
    }
    // After the owner, because changing that clears bits of the mode.
    file.set_permissions(Permissions::clone(&like.permissions()))
}

fn in_place(target: &Place, content: &[u8]) -> Result<(), FileError> {
    let (mut file, _) = open::regular_for_writing(target)?;
    let written = file.write_all(content).and_then(|()| file.set_len(content.len() as u64));
    written.map_err(|error| FileError::io("writing", target.told(), error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    fn replace(target: &Path, content: &[u8]) -> Result<(), FileError> {
        super::replace(&Place::anywhere(target.to_owned()), content)
    }

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
