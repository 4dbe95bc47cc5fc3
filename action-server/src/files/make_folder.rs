//! Creates a folder.

use std::borrow::Cow;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use protocol::sandbox_api::{FileStatus, MakeFolderRequest};

use super::error::FileError;
use super::{Files, status};

/// Returns the folder's status, and whether it is new.
pub(crate) fn make_folder(
    files: &Files,
    path: &Path,
    request: &MakeFolderRequest,
) -> Result<(FileStatus, bool), FileError> {
    let named = files.resolve_name(path)?;
    let resolved = if request.parents {
        named.with_parents()?
    } else {
        Cow::Borrowed(&named)
    };
    let is_new = match fs::create_dir(resolved.path()) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !request.parents || !files.is_folder(path) {
                return Err(FileError::Exists(path.to_owned()));
            }
            false
        }
        Err(error) => return Err(FileError::io("create the folder", path, error)),
    };
    if let (true, Some(mode)) = (is_new, request.mode) {
        // The umask applies to new folders, but not to `set_permissions`.
        let made = resolved.pin();
        made.and_then(|made| fs::set_permissions(made.path(), Permissions::from_mode(mode.bits())))
            .map_err(|error| FileError::io("set the mode of", path, error))?;
    }
    Ok((status::status(files, path, true)?, is_new))
}
