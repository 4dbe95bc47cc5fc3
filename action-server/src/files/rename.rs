//! Gives a file, a link or a folder another path, at once. A file may go to another file system, a folder not.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use protocol::sandbox_api::FileStatus;

use super::error::FileError;
use super::place::Place;
use super::replace::become_like;
use super::temporary::Temporary;
use super::{Files, open, status};

pub(crate) fn rename(files: &Files, from: &Path, to: &Path, is_over: bool) -> Result<FileStatus, FileError> {
    let (from, to) = (&files.named(from)?, &files.named(to)?);
    if let Some(root) = [from, to].into_iter().find(|place| place.is_held()) {
        let problem = "is not moved, nor moved to: it has no name beneath the root";
        return Err(FileError::Unfit { path: root.told().to_owned(), problem });
    }
    let metadata = fs::symlink_metadata(from.path());
    let metadata = metadata.map_err(|error| FileError::io("moving", from.told(), error))?;
    let _changing = files.change(to);
    let to = &*to.with_parents()?;
    match renamed(from, to, is_over) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => across(from, to, is_over, &metadata)?,
        Err(error) => return Err(told(from, to, error)),
    }
    status::of_name(to)
}

fn renamed(from: &Place, to: &Place, is_over: bool) -> io::Result<()> {
    if is_over {
        return fs::rename(from.path(), to.path());
    }
    match renameat2(AT_FDCWD, from.path(), AT_FDCWD, to.path(), RenameFlags::RENAME_NOREPLACE) {
        // Some file systems cannot promise it; looking first is the most that can be done there.
        Err(Errno::EINVAL | Errno::ENOSYS) if fs::symlink_metadata(to.path()).is_err() => {
            fs::rename(from.path(), to.path())
        }
        Err(Errno::EINVAL | Errno::ENOSYS) if !to.told().starts_with(from.told()) => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        ended => ended.map_err(io::Error::from),
    }
}

fn across(from: &Place, to: &Place, is_over: bool, metadata: &Metadata) -> Result<(), FileError> {
    if !metadata.is_file() {
        let problem = "is on another file system, where only files are moved to; use the routes of trees";
        return Err(FileError::Unfit { path: from.told().to_owned(), problem });
    }
    let (mut source, metadata) = open::regular(from)?;
    let mut copied = || -> io::Result<()> {
        let (mut file, name) = Temporary::beside(to, 0o600)?;
        io::copy(&mut source, &mut file)?;
        become_like(&file, &metadata)?;
        file.set_modified(metadata.modified()?)?;
        name.rename_to_unless_taken(to, is_over)?;
        fs::remove_file(from.path())
    };
    copied().map_err(|error| told(from, to, error))
}

fn told(from: &Place, to: &Place, error: io::Error) -> FileError {
    let (from, to) = (from.told(), to.told());
    let unfit = |path: &Path, problem| FileError::Unfit { path: path.to_owned(), problem };
    match error.kind() {
        io::ErrorKind::AlreadyExists => FileError::Exists(to.to_owned()),
        io::ErrorKind::DirectoryNotEmpty => unfit(to, "is a folder that is not empty"),
        io::ErrorKind::IsADirectory => unfit(to, "is a folder, and what is moved is not"),
        io::ErrorKind::NotADirectory => unfit(to, "is not a folder, and what is moved is one"),
        io::ErrorKind::InvalidInput if to.starts_with(from) => unfit(to, "lies in what is moved"),
        _ => FileError::io("moving", from, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_kept_unless_asked() {
        let dir = tempfile::tempdir().unwrap();
        let (files, at) = (Files::anywhere(), |name: &str| dir.path().join(name));
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        fs::create_dir(at("full")).unwrap();
        fs::write(at("full/x"), "x").unwrap();
        assert!(matches!(rename(&files, &at("a"), &at("b"), false), Err(FileError::Exists(_))));
        assert!(matches!(rename(&files, &at("a"), &at("full"), true), Err(FileError::Unfit { .. })));
        assert!(matches!(
            rename(&files, &at("full"), &at("full/in/it"), false),
            Err(FileError::Unfit { .. })
        ));
        assert!(matches!(rename(&files, &at("missing"), &at("c"), false), Err(FileError::NotFound(_))));
        assert_eq!(rename(&files, &at("a"), &at("b"), true).unwrap().path, at("b").to_string_lossy());
        assert_eq!((fs::read(at("b")).unwrap(), at("a").exists()), (b"a".to_vec(), false));
        rename(&files, &at("full"), &at("new/folder"), false).unwrap();
        assert_eq!(fs::read(at("new/folder/x")).unwrap(), b"x");
    }

    #[test]
    fn files_go_to_other_file_systems_too() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let (from, to) = (dir.path().join("a"), other.path().join("b"));
        fs::write(&from, "a").unwrap();
        let metadata = fs::metadata(&from).unwrap();
        let place = |path: &Path| Place::anywhere(path.to_owned());
        // Where both are one file system, this is what is left to test.
        across(&place(&from), &place(&to), false, &metadata).unwrap();
        assert_eq!((fs::read(&to).unwrap(), from.exists()), (b"a".to_vec(), false));
        assert_eq!(fs::metadata(&to).unwrap().permissions(), metadata.permissions());
        fs::write(&from, "c").unwrap();
        assert!(matches!(across(&place(&from), &place(&to), false, &metadata), Err(FileError::Exists(_))));
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    }
}
