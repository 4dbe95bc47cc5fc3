//! Removes a file, a link or a folder. Links are never followed.

use std::fs;
use std::io;
use std::path::Path;

use remove_folder::{ProtectedFolders, remove_folder};

use super::Files;
use super::error::FileError;

pub(crate) fn remove(files: &Files, path: &Path, is_recursive: bool) -> Result<(), FileError> {
    let resolved = files.resolve_name(path)?;
    if !resolved.has_name() {
        return Err(FileError::Unfit {
            path: path.to_owned(),
            problem: "cannot be removed: it has no name",
        });
    }
    let _lock = files.lock(&resolved);
    let metadata = fs::symlink_metadata(resolved.path())
        .map_err(|error| FileError::io("inspect", path, error))?;
    let removed = match (metadata.is_dir(), is_recursive) {
        (false, _) => fs::remove_file(resolved.path()),
        (true, false) => fs::remove_dir(resolved.path()),
        (true, true) => remove_folder(resolved.path(), ProtectedFolders::Keep),
    };
    removed.map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => FileError::Unfit {
            path: path.to_owned(),
            problem: "is a folder that is not empty; use `recursive=true`",
        },
        _ => FileError::io("remove", path, error),
    })
}
