//! A file that arrives in parts, of any length. What it replaces stays whole until all of it is there, and keeps its mode
//! and owner; of one that never ends nothing is left.

use std::borrow::Cow;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use bytes::Bytes;
use protocol::sandbox_api::{FileMode, FileStatus};

use super::error::FileError;
use super::place::Place;
use super::replace::{a_write_in_place_may_do, become_like, existing};
use super::temporary::Temporary;
use super::{Files, open, status};

/// The part that is there. Dropping it removes it, which may take a while for a long file.
#[derive(Debug)]
pub(crate) struct Upload {
    target: Place,
    mode: Option<FileMode>,
    file: File,
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// On the target's file system, so that it can take its place.
    Beside(Temporary),
    /// The target's folder lets us make no files, but the target can be written to.
    Elsewhere { _removed_in_the_end: Temporary },
}

impl Upload {
    /// Nothing is changed yet; what can be known to be impossible is told now.
    pub(crate) fn begin(files: &Files, path: &Path, mode: Option<FileMode>) -> Result<Self, FileError> {
        let target = files.target(path)?;
        if !target.has_name() {
            return Err(FileError::Directory(target.told().to_owned()));
        }
        let existing = existing(&target)?;
        let (file, part) =
            match Temporary::within(&target.nearest_folder()?, first_mode(existing.as_ref(), mode)) {
                Ok((file, name)) => (file, Part::Beside(name)),
                Err(error) if existing.is_some() && a_write_in_place_may_do(&error) => {
                    let made = Temporary::within(&Place::anywhere(std::env::temp_dir()), 0o600);
                    let (file, name) =
                        made.map_err(|error| FileError::io("writing", target.told(), error))?;
                    (file, Part::Elsewhere { _removed_in_the_end: name })
                }
                Err(error) => return Err(FileError::io("writing", target.told(), error)),
            };
        Ok(Self { target, mode, file, part })
    }

    /// Adds to its end.
    pub(crate) fn write(&mut self, parts: &[Bytes]) -> Result<(), FileError> {
        let written = parts.iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|error| FileError::io("writing", self.target.told(), error))
    }

    /// It is whole and takes its place. Also whether it is new there.
    pub(crate) fn finish(self, files: &Files) -> Result<(FileStatus, bool), FileError> {
        let Self { target, mode, mut file, part } = self;
        let _changing = files.change(&target);
        let before = existing(&target)?;
        let target = if before.is_none() { target.with_parents()? } else { Cow::Borrowed(&target) };
        let placed = match (&before, part) {
            (None, Part::Beside(name)) => set_mode(&file, mode).and_then(|()| name.rename_to(&target)),
            (Some(like), Part::Beside(name)) if like.nlink() == 1 => {
                let kept = become_like(&file, like).and_then(|()| set_mode(&file, mode));
                match kept.and_then(|()| name.rename_to(&target)) {
                    Err(error) if a_write_in_place_may_do(&error) => copy_over(&mut file, &target, mode),
                    renamed => renamed,
                }
            }
            (_, Part::Beside(_) | Part::Elsewhere { .. }) => copy_over(&mut file, &target, mode),
        };
        placed.map_err(|error| FileError::io("writing", target.told(), error))?;
        Ok((status::of_target(&target)?, before.is_none()))
    }
}

/// What nobody else may read must not be readable meanwhile.
fn first_mode(existing: Option<&Metadata>, asked: Option<FileMode>) -> u32 {
    let mode = existing.map_or(0o666, |existing| existing.mode()) & asked.map_or(0o666, FileMode::bits);
    (mode & 0o666) | 0o600
}

fn set_mode(file: &File, mode: Option<FileMode>) -> io::Result<()> {
    match mode {
        Some(mode) => file.set_permissions(Permissions::from_mode(mode.bits())),
        None => Ok(()),
    }
}

fn copy_over(file: &mut File, target: &Place, mode: Option<FileMode>) -> io::Result<()> {
    file.rewind()?;
    let (mut over, _) = open::regular_for_writing(target).map_err(io::Error::other)?;
    let length = io::copy(file, &mut over)?;
    over.set_len(length)?;
    set_mode(&over, mode)
}
