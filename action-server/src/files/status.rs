//! What lies at a path, as the file routes tell it.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use protocol::sandbox_api::{FileKind, FileStatus, Mode};

use super::error::FileError;

/// Of what is at `path`; of a link itself unless it is followed.
pub(crate) fn status(path: &Path, is_followed: bool) -> Result<FileStatus, FileError> {
    let metadata = if is_followed { fs::metadata(path) } else { fs::symlink_metadata(path) };
    match metadata {
        Ok(metadata) => Ok(described(path.to_string_lossy().into_owned(), path, &metadata)),
        Err(error) => Err(FileError::io("looking at", path, error)),
    }
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
        mode: Mode::of(metadata.mode()),
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
