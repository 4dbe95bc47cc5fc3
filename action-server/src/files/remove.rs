//! Removes a file, a link or a folder. Links are never followed, not at the path either.

use std::fs;
use std::io;
use std::path::Path;

use super::Files;
use super::error::FileError;

pub(crate) fn remove(files: &Files, path: &Path, is_recursive: bool) -> Result<(), FileError> {
    let place = files.named(path)?;
    if !place.has_name() {
        return Err(FileError::Unfit { path: path.to_owned(), problem: "is not removed: it has no name" });
    }
    let _changing = files.change(&place);
    let metadata =
        fs::symlink_metadata(place.path()).map_err(|error| FileError::io("looking at", path, error))?;
    let removed = match (metadata.is_dir(), is_recursive) {
        (false, _) => fs::remove_file(place.path()),
        (true, false) => fs::remove_dir(place.path()),
        (true, true) => fs::remove_dir_all(place.path()),
    };
    removed.map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty => FileError::Unfit {
            path: path.to_owned(),
            problem: "is a folder that is not empty; say `recursive=true`",
        },
        _ => FileError::io("removing", path, error),
    })
}
