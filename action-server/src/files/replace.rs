//! Replaces the content of a file, atomically if the folder allows it. Mode, owner and hard links
//! are kept.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};

use nix::unistd::{AccessFlags, access};

use super::error::FileError;
use super::open;
use super::resolved_path::ResolvedPath;
use super::temporary::TemporaryFile;

/// Replaces or creates a file. `target` has no links (see `path::follow`). Missing folders are
/// created.
pub(super) fn replace(target: &ResolvedPath, content: &[u8]) -> Result<(), FileError> {
    match existing(target)? {
        None => {
            let target = target.with_parents()?;
            by_rename(&target, content, None)
                .map_err(|error| FileError::io("write", target.display_path(), error))
        }
        Some(metadata) => over_existing(target, content, &metadata),
    }
}

/// Returns the metadata of the existing file. `None` if there is none; an error if it may not be
/// replaced.
pub(super) fn existing(target: &ResolvedPath) -> Result<Option<Metadata>, FileError> {
    let display_path = target.display_path();
    let found = target
        .pin()
        .and_then(|found| Ok((found.metadata()?, found)));
    match found {
        Ok((metadata, _)) if metadata.is_dir() => {
            Err(FileError::Directory(display_path.to_owned()))
        }
        Ok((metadata, _)) if !metadata.is_file() => {
            Err(FileError::Special(display_path.to_owned()))
        }
        // A rename only requires permission to write to the folder, so that of the file is checked.
        Ok((metadata, found)) => match access(found.path(), AccessFlags::W_OK) {
            Ok(()) => Ok(Some(metadata)),
            Err(errno) => Err(FileError::io("write", display_path, errno.into())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::io("inspect", display_path, error)),
    }
}

/// Writes in place if a rename would lose hard links or the owner, or is not possible because the
/// file is a mount or the folder is not writable.
fn over_existing(
    target: &ResolvedPath,
    content: &[u8],
    metadata: &Metadata,
) -> Result<(), FileError> {
    if metadata.nlink() > 1 {
        return in_place(target, content);
    }
    match by_rename(target, content, Some(metadata)) {
        Ok(()) => Ok(()),
        Err(error) if allows_write_in_place(&error) => in_place(target, content),
        Err(error) => Err(FileError::io("write", target.display_path(), error)),
    }
}

pub(super) fn allows_write_in_place(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(
        error.kind(),
        PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices
    )
}

fn by_rename(target: &ResolvedPath, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    let (mut file, name) = TemporaryFile::create_beside(target, 0o666)?;
    file.write_all(content)?;
    if let Some(like) = like {
        copy_owner_and_mode(&file, like)?;
    }
    name.rename_to(target)
}

/// Sets the owner and mode of `file` to those of the file that it replaces.
pub(super) fn copy_owner_and_mode(file: &File, like: &Metadata) -> io::Result<()> {
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
        fchown(file, Some(like.uid()), Some(like.gid()))?;
    }
    // After the owner, because changing the owner clears some bits of the mode.
    file.set_permissions(Permissions::clone(&like.permissions()))
}

fn in_place(target: &ResolvedPath, content: &[u8]) -> Result<(), FileError> {
    let (mut file, _) = open::regular_for_writing(target)?;
    let written = file
        .write_all(content)
        .and_then(|()| file.set_len(content.len() as u64));
    written.map_err(|error| FileError::io("write", target.display_path(), error))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    fn replace(target: &Path, content: &[u8]) -> Result<(), FileError> {
        super::replace(&ResolvedPath::unconfined(target.to_owned()), content)
    }

    #[test]
    fn mode_and_hard_links_are_kept_and_no_file_is_left() {
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
    fn new_file_gets_folders_and_the_default_mode() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a/b/file");
        replace(&file, b"x").unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();
        assert_eq!(
            fs::metadata(&file).unwrap().mode(),
            fs::metadata(&other).unwrap().mode()
        );
    }

    #[test]
    fn replace_fails_for_folders_and_devices() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            replace(dir.path(), b""),
            Err(FileError::Directory(_))
        ));
        assert!(matches!(
            replace(Path::new("/dev/null"), b""),
            Err(FileError::Special(_))
        ));
    }
}
