//! A file that arrives in parts, of any length. What it replaces stays whole until all of it is there, and keeps its mode
//! and owner; of one that never ends nothing is left.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use protocol::sandbox_api::{FileStatus, Mode};

use super::error::FileError;
use super::replace::{a_write_in_place_may_do, become_like, existing, make_parents};
use super::temporary::{Temporary, nearest_folder};
use super::{Files, open, path, status};

/// The part that is there. Dropping it removes it, which may take a while for a long file.
#[derive(Debug)]
pub(crate) struct Upload {
    target: PathBuf,
    mode: Option<Mode>,
    file: File,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// On the target's file system, so that it can take its place.
    Beside(Temporary),
    /// The target's folder lets us make no files, but the target can be written to.
    Elsewhere { _removed_in_the_end: Temporary },
}

impl Upload {
    /// Nothing is changed yet; what can be known to be impossible is told now.
    pub(crate) fn begin(path: &Path, mode: Option<Mode>) -> Result<Self, FileError> {
        let target = path::follow(path);
        if target.file_name().is_none() {
            return Err(FileError::Directory(target));
        }
        let existing = existing(&target)?;
        let (file, place) =
            match Temporary::within(nearest_folder(&target)?, first_mode(existing.as_ref(), mode)) {
                Ok((file, name)) => (file, Place::Beside(name)),
                Err(error) if existing.is_some() && a_write_in_place_may_do(&error) => {
                    let made = Temporary::within(&std::env::temp_dir(), 0o600);
                    let (file, name) = made.map_err(|error| FileError::io("writing", &target, error))?;
                    (file, Place::Elsewhere { _removed_in_the_end: name })
                }
                Err(error) => return Err(FileError::io("writing", &target, error)),
            };
        Ok(Self { target, mode, file, place })
    }

    /// Adds to its end.
    pub(crate) fn write(&mut self, parts: &[Bytes]) -> Result<(), FileError> {
        let written = parts.iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|error| FileError::io("writing", &self.target, error))
    }

    /// It is whole and takes its place. Also whether it is new there.
    pub(crate) fn finish(self, files: &Files) -> Result<(FileStatus, bool), FileError> {
        let Self { target, mode, mut file, place } = self;
        let _changing = files.change(&target);
        let before = existing(&target)?;
        let placed = match (&before, place) {
            (None, Place::Beside(name)) => {
                make_parents(&target)?;
                set_mode(&file, mode).and_then(|()| name.rename_to(&target))
            }
            (Some(like), Place::Beside(name)) if like.nlink() == 1 => {
                let kept = become_like(&file, like).and_then(|()| set_mode(&file, mode));
                match kept.and_then(|()| name.rename_to(&target)) {
                    Err(error) if a_write_in_place_may_do(&error) => copy_over(&mut file, &target, mode),
                    renamed => renamed,
                }
            }
            (_, Place::Beside(_) | Place::Elsewhere { .. }) => copy_over(&mut file, &target, mode),
        };
        placed.map_err(|error| FileError::io("writing", &target, error))?;
        Ok((status::status(&target, true)?, before.is_none()))
    }
}

/// What nobody else may read must not be readable meanwhile.
fn first_mode(existing: Option<&Metadata>, asked: Option<Mode>) -> u32 {
    let mode = existing.map_or(0o666, |existing| existing.mode()) & asked.map_or(0o666, Mode::bits);
    (mode & 0o666) | 0o600
}

fn set_mode(file: &File, mode: Option<Mode>) -> io::Result<()> {
    match mode {
        Some(mode) => file.set_permissions(Permissions::from_mode(mode.bits())),
        None => Ok(()),
    }
}

fn copy_over(file: &mut File, target: &Path, mode: Option<Mode>) -> io::Result<()> {
    file.rewind()?;
    let (mut over, _) = open::regular_for_writing(target).map_err(io::Error::other)?;
    let length = io::copy(file, &mut over)?;
    over.set_len(length)?;
    set_mode(&over, mode)
}
