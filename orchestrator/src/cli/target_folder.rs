//! The folder of a file that a command writes.

use std::path::Path;

use crate::exit::UsageError;

/// Returns the folder of a file. Fails if it does not exist: its name may be misspelt, so that
/// commands do not create it.
pub(super) fn folder_of(file: &Path) -> Result<&Path, UsageError> {
    let folder = file
        .parent()
        .filter(|folder| *folder != Path::new(""))
        .unwrap_or(Path::new("."));
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(UsageError(format!(
            "there is no folder {}",
            folder.display()
        ))),
    }
}
