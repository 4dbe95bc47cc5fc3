//! Moves a file, a link or a folder, atomically. Only files can be moved to another file system.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use protocol::sandbox_api::FileStatus;

use super::error::FileError;
use super::replace::copy_owner_and_mode;
use super::resolved_path::ResolvedPath;
use super::temporary::TemporaryFile;
use super::{Files, open, status};

pub(crate) fn rename(
    files: &Files,
    from: &Path,
    to: &Path,
    is_over: bool,
) -> Result<FileStatus, FileError> {
    let (from, to) = (&files.resolve_name(from)?, &files.resolve_name(to)?);
    if let Some(root) = [from, to].into_iter().find(|resolved| resolved.is_open()) {
        let problem = "cannot be moved or replaced: it has no name beneath the root";
        return Err(FileError::Unfit {
            path: root.display_path().to_owned(),
            problem,
        });
    }
    let metadata = fs::symlink_metadata(from.path());
    let metadata = metadata.map_err(|error| FileError::io("move", from.display_path(), error))?;
    let _lock = files.lock(to);
    let to = &*to.with_parents()?;
    match renamed(from, to, is_over) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            across(from, to, is_over, &metadata)?;
        }
        Err(error) => return Err(to_file_error(from, to, error)),
    }
    status::name_status(to)
}

fn renamed(from: &ResolvedPath, to: &ResolvedPath, is_over: bool) -> io::Result<()> {
    if is_over {
        return fs::rename(from.path(), to.path());
    }
    match renameat2(
        AT_FDCWD,
        from.path(),
        AT_FDCWD,
        to.path(),
        RenameFlags::RENAME_NOREPLACE,
    ) {
        // Some file systems do not support the flag; then a check before the rename must do.
        Err(Errno::EINVAL | Errno::ENOSYS) if fs::symlink_metadata(to.path()).is_err() => {
            fs::rename(from.path(), to.path())
        }
        Err(Errno::EINVAL | Errno::ENOSYS)
            if !to.display_path().starts_with(from.display_path()) =>
        {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        result => result.map_err(io::Error::from),
    }
}

fn across(
    from: &ResolvedPath,
    to: &ResolvedPath,
    is_over: bool,
    metadata: &Metadata,
) -> Result<(), FileError> {
    if !metadata.is_file() {
        let problem =
            "is on another file system, to which only files can be moved; use the routes of trees";
        return Err(FileError::Unfit {
            path: from.display_path().to_owned(),
            problem,
        });
    }
    let (mut source, metadata) = open::regular(from)?;
    let mut copied = || -> io::Result<()> {
        let (mut file, name) = TemporaryFile::create_beside(to, 0o600)?;
        io::copy(&mut source, &mut file)?;
        copy_owner_and_mode(&file, &metadata)?;
        file.set_modified(metadata.modified()?)?;
        name.rename_to_unless_taken(to, is_over)?;
        fs::remove_file(from.path())
    };
    copied().map_err(|error| to_file_error(from, to, error))
}

fn to_file_error(from: &ResolvedPath, to: &ResolvedPath, error: io::Error) -> FileError {
    let (from, to) = (from.display_path(), to.display_path());
    let unfit = |path: &Path, problem| FileError::Unfit {
        path: path.to_owned(),
        problem,
    };
    match error.kind() {
        io::ErrorKind::AlreadyExists => FileError::Exists(to.to_owned()),
        io::ErrorKind::DirectoryNotEmpty => unfit(to, "is a folder that is not empty"),
        io::ErrorKind::IsADirectory => unfit(to, "is a folder, but the source is not"),
        io::ErrorKind::NotADirectory => unfit(to, "is not a folder, but the source is"),
        io::ErrorKind::InvalidInput if to.starts_with(from) => unfit(to, "is inside the source"),
        _ => FileError::io("move", from, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_is_kept_unless_overwrite_is_requested() {
        let dir = tempfile::tempdir().unwrap();
        let (files, at) = (Files::unconfined(), |name: &str| dir.path().join(name));
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        fs::create_dir(at("full")).unwrap();
        fs::write(at("full/x"), "x").unwrap();
        assert!(matches!(
            rename(&files, &at("a"), &at("b"), false),
            Err(FileError::Exists(_))
        ));
        assert!(matches!(
            rename(&files, &at("a"), &at("full"), true),
            Err(FileError::Unfit { .. })
        ));
        assert!(matches!(
            rename(&files, &at("full"), &at("full/in/it"), false),
            Err(FileError::Unfit { .. })
        ));
        assert!(matches!(
            rename(&files, &at("missing"), &at("c"), false),
            Err(FileError::NotFound(_))
        ));
        assert_eq!(
            rename(&files, &at("a"), &at("b"), true).unwrap().path,
            at("b").to_string_lossy()
        );
        assert_eq!(
            (fs::read(at("b")).unwrap(), at("a").exists()),
            (b"a".to_vec(), false)
        );
        rename(&files, &at("full"), &at("new/folder"), false).unwrap();
        assert_eq!(fs::read(at("new/folder/x")).unwrap(), b"x");
    }

    #[test]
    fn file_is_moved_to_another_file_system() {
        let (dir, other) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir_in("/dev/shm").unwrap(),
        );
        let (from, to) = (dir.path().join("a"), other.path().join("b"));
        fs::write(&from, "a").unwrap();
        let metadata = fs::metadata(&from).unwrap();
        let resolved = |path: &Path| ResolvedPath::unconfined(path.to_owned());
        // Tests the function directly, in case both folders are on one file system.
        across(&resolved(&from), &resolved(&to), false, &metadata).unwrap();
        assert_eq!(
            (fs::read(&to).unwrap(), from.exists()),
            (b"a".to_vec(), false)
        );
        assert_eq!(
            fs::metadata(&to).unwrap().permissions(),
            metadata.permissions()
        );
        fs::write(&from, "c").unwrap();
        assert!(matches!(
            across(&resolved(&from), &resolved(&to), false, &metadata),
            Err(FileError::Exists(_))
        ));
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    }
}
