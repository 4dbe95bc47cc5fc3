//! What lies at a path, as the file routes tell it.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use protocol::sandbox_api::{FileKind, FileMode, FileStatus};

use super::Files;
use super::error::FileError;
use super::place::Place;

/// Of what is at `path`; of a link itself unless it is followed.
pub(crate) fn status(files: &Files, path: &Path, is_followed: bool) -> Result<FileStatus, FileError> {
    if is_followed { of_target(&files.found(path)?) } else { of_name(&files.named(path)?) }
}

/// Of what is there, behind a link where links may be followed.
pub(super) fn of_target(place: &Place) -> Result<FileStatus, FileError> {
    let found = place.itself().and_then(|found| Ok(told(&found, &found.metadata()?)));
    found.map_err(|error| FileError::io("looking at", place.told(), error))
}

/// Of what is there, a link or not.
pub(super) fn of_name(place: &Place) -> Result<FileStatus, FileError> {
    // The path of what is held is a link of /proc's.
    let metadata = if place.is_held() { place.metadata() } else { fs::symlink_metadata(place.path()) };
    let found = metadata.map(|metadata| told(place, &metadata));
    found.map_err(|error| FileError::io("looking at", place.told(), error))
}

fn told(place: &Place, metadata: &Metadata) -> FileStatus {
    described(place.told().to_string_lossy().into_owned(), place.path(), metadata)
}

/// `shown` is the path that is told; where a link leads is read at `path`.
pub(super) fn described(shown: String, path: &Path, metadata: &Metadata) -> FileStatus {
    let nanoseconds = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    let is_link = metadata.file_type().is_symlink();
    let target = if is_link { fs::read_link(path).ok() } else { None };
    FileStatus {
        path: shown,
        kind: kind(metadata.file_type()),
        size: metadata.len(),
        mode: FileMode::from_bits(metadata.mode()),
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified_ns: nanoseconds.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
        target: target.map(|target| target.to_string_lossy().into_owned()),
    }
}

fn kind(of: FileType) -> FileKind {
    match of {
        of if of.is_file() => FileKind::File,
        of if of.is_dir() => FileKind::Directory,
        of if of.is_symlink() => FileKind::Symlink,
        of if of.is_fifo() => FileKind::Pipe,
        of if of.is_socket() => FileKind::Socket,
        of if of.is_block_device() => FileKind::BlockDevice,
        of if of.is_char_device() => FileKind::CharacterDevice,
        _ => FileKind::Unknown,
    }
}
