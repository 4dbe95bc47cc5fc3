//! The status of a file for the file routes.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use protocol::sandbox_api::{FileKind, FileMode, FileStatus};

use super::Files;
use super::error::FileError;
use super::resolved_path::ResolvedPath;

/// Returns the status of a file, or of a link if it is not followed.
pub(crate) fn status(
    files: &Files,
    path: &Path,
    is_followed: bool,
) -> Result<FileStatus, FileError> {
    if is_followed {
        target_status(&files.resolve(path)?)
    } else {
        name_status(&files.resolve_name(path)?)
    }
}

/// Returns the status of the file, following links where the path allows it.
pub(super) fn target_status(resolved: &ResolvedPath) -> Result<FileStatus, FileError> {
    let found = resolved
        .pin()
        .and_then(|found| Ok(describe_path(&found, &found.metadata()?)));
    found.map_err(|error| FileError::io("inspect", resolved.display_path(), error))
}

/// Returns the status of the file, or of the link.
pub(super) fn name_status(resolved: &ResolvedPath) -> Result<FileStatus, FileError> {
    // The path of an open file is a magic link of `/proc`.
    let metadata = if resolved.is_open() {
        resolved.metadata()
    } else {
        fs::symlink_metadata(resolved.path())
    };
    let found = metadata.map(|metadata| describe_path(resolved, &metadata));
    found.map_err(|error| FileError::io("inspect", resolved.display_path(), error))
}

fn describe_path(resolved: &ResolvedPath, metadata: &Metadata) -> FileStatus {
    describe(
        resolved.display_path().to_string_lossy().into_owned(),
        resolved.path(),
        metadata,
    )
}

/// `display_path` is the path in the status. The target of a link is read at `path`.
pub(super) fn describe(display_path: String, path: &Path, metadata: &Metadata) -> FileStatus {
    let nanoseconds =
        i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    let is_link = metadata.file_type().is_symlink();
    let target = if is_link {
        fs::read_link(path).ok()
    } else {
        None
    };
    FileStatus {
        path: display_path,
        kind: kind(metadata.file_type()),
        size: metadata.len(),
        mode: FileMode::from_bits(metadata.mode()),
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified_ns: nanoseconds.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
        target: target.map(|target| target.to_string_lossy().into_owned()),
    }
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        kind if kind.is_file() => FileKind::File,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Pipe,
        kind if kind.is_socket() => FileKind::Socket,
        kind if kind.is_block_device() => FileKind::BlockDevice,
        kind if kind.is_char_device() => FileKind::CharacterDevice,
        _ => FileKind::Unknown,
    }
}
