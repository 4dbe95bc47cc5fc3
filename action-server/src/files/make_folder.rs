//! Makes a folder.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use protocol::sandbox_api::{FileStatus, MakeFolderRequest};

use super::error::FileError;
use super::replace::make_parents;
use super::status;

/// Also whether it is new.
pub(crate) fn make_folder(path: &Path, request: &MakeFolderRequest) -> Result<(FileStatus, bool), FileError> {
    if request.parents {
        make_parents(path)?;
    }
    let is_new = match fs::create_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if !request.parents || !path.is_dir() {
                return Err(FileError::Exists(path.to_owned()));
            }
            false
        }
        Err(error) => return Err(FileError::io("making the folder", path, error)),
    };
    if let (true, Some(mode)) = (is_new, request.mode) {
        // The process's mask has a say in what is made, not in what is set.
        fs::set_permissions(path, Permissions::from_mode(mode.bits()))
            .map_err(|error| FileError::io("setting the mode of", path, error))?;
    }
    Ok((status::status(path, true)?, is_new))
}
