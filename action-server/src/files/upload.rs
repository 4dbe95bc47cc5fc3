//! Writes a file of any length that arrives in parts. An existing file is replaced when all parts
//! have arrived; its mode and owner are kept. Nothing is left of an incomplete upload.

use std::borrow::Cow;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use bytes::Bytes;
use protocol::sandbox_api::{FileMode, FileStatus};

use super::error::FileError;
use super::replace::{allows_write_in_place, copy_owner_and_mode, existing};
use super::resolved_path::ResolvedPath;
use super::temporary::TemporaryFile;
use super::{Files, open, status};

/// An incomplete upload. Dropping it removes its file, which may take time if it is long.
#[derive(Debug)]
pub(crate) struct Upload {
    target: ResolvedPath,
    mode: Option<FileMode>,
    file: File,
    part: PartialFile,
}

#[derive(Debug)]
enum PartialFile {
    /// A file on the file system of the target, which it can be renamed to.
    Beside(TemporaryFile),
    /// A file in the temporary folder, because the folder of the target is not writable. The target
    /// is.
    Elsewhere { _removed_on_drop: TemporaryFile },
}

impl Upload {
    /// Opens a temporary file and checks that the target can be written.
    pub(crate) fn start(
        files: &Files,
        path: &Path,
        mode: Option<FileMode>,
    ) -> Result<Self, FileError> {
        let target = files.resolve_target(path)?;
        if !target.has_name() {
            return Err(FileError::Directory(target.display_path().to_owned()));
        }
        let existing = existing(&target)?;
        let (file, part) = match TemporaryFile::create_in(
            &target.nearest_folder()?,
            first_mode(existing.as_ref(), mode),
        ) {
            Ok((file, name)) => (file, PartialFile::Beside(name)),
            Err(error) if existing.is_some() && allows_write_in_place(&error) => {
                let made = TemporaryFile::create_in(
                    &ResolvedPath::unconfined(std::env::temp_dir()),
                    0o600,
                );
                let (file, name) =
                    made.map_err(|error| FileError::io("write", target.display_path(), error))?;
                (
                    file,
                    PartialFile::Elsewhere {
                        _removed_on_drop: name,
                    },
                )
            }
            Err(error) => return Err(FileError::io("write", target.display_path(), error)),
        };
        Ok(Self {
            target,
            mode,
            file,
            part,
        })
    }

    /// Appends to the file.
    pub(crate) fn write(&mut self, parts: &[Bytes]) -> Result<(), FileError> {
        let written = parts.iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|error| FileError::io("write", self.target.display_path(), error))
    }

    /// Replaces the target. Returns its status, and whether it is new.
    pub(crate) fn finish(self, files: &Files) -> Result<(FileStatus, bool), FileError> {
        let Self {
            target,
            mode,
            mut file,
            part,
        } = self;
        let _lock = files.lock(&target);
        let before = existing(&target)?;
        let target = if before.is_none() {
            target.with_parents()?
        } else {
            Cow::Borrowed(&target)
        };
        let placed = match (&before, part) {
            (None, PartialFile::Beside(name)) => {
                set_mode(&file, mode).and_then(|()| name.rename_to(&target))
            }
            (Some(like), PartialFile::Beside(name)) if like.nlink() == 1 => {
                let kept = copy_owner_and_mode(&file, like).and_then(|()| set_mode(&file, mode));
                match kept.and_then(|()| name.rename_to(&target)) {
                    Err(error) if allows_write_in_place(&error) => {
                        copy_over(&mut file, &target, mode)
                    }
                    renamed => renamed,
                }
            }
            (_, PartialFile::Beside(_) | PartialFile::Elsewhere { .. }) => {
                copy_over(&mut file, &target, mode)
            }
        };
        placed.map_err(|error| FileError::io("write", target.display_path(), error))?;
        Ok((status::target_status(&target)?, before.is_none()))
    }
}

/// Returns the mode of the temporary file, which must not be more accessible than the target will
/// be.
fn first_mode(existing: Option<&Metadata>, requested: Option<FileMode>) -> u32 {
    let mode = existing.map_or(0o666, |existing| existing.mode())
        & requested.map_or(0o666, FileMode::bits);
    (mode & 0o666) | 0o600
}

fn set_mode(file: &File, mode: Option<FileMode>) -> io::Result<()> {
    match mode {
        Some(mode) => file.set_permissions(Permissions::from_mode(mode.bits())),
        None => Ok(()),
    }
}

fn copy_over(file: &mut File, target: &ResolvedPath, mode: Option<FileMode>) -> io::Result<()> {
    file.rewind()?;
    let (mut over, _) = open::regular_for_writing(target).map_err(io::Error::other)?;
    let length = io::copy(file, &mut over)?;
    over.set_len(length)?;
    set_mode(&over, mode)
}
