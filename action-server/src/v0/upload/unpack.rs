//! Unpacks an uploaded archive. Errors in its directory are detected before anything is written. An
//! error in an entry's data stops unpacking there. Blocking.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::folder::UploadFolder;
use crate::v0::archive::{ArchiveDirectory, ArchiveEntry, ArchiveEntryKind, EntryReader};
use crate::v0::transfer_error::TransferError;

/// Maximum size of the contents of an archive.
const MAX_UNPACKED_BYTES: u64 = 4 << 30;

/// Above this size, the contents may be at most [`MAX_RATIO`] times as long as the archive.
const FREE_BYTES: u64 = 256 << 20;
const MAX_RATIO: u64 = 100;

/// Unpacks `archive` into `destination`.
pub(in crate::v0) fn unpack(archive: &File, destination: &Path) -> Result<(), TransferError> {
    let directory = ArchiveDirectory::read(archive)?;
    check_length(archive, &directory)?;
    let root = UploadFolder::create(destination)?;
    directory
        .entries
        .iter()
        .try_for_each(|entry| put(&directory, entry, &root))
}

fn check_length(archive: &File, directory: &ArchiveDirectory) -> Result<(), TransferError> {
    let packed = archive
        .metadata()
        .map_err(|error| TransferError::Refused(error.to_string()))?
        .len();
    let unpacked = directory
        .entries
        .iter()
        .fold(0, |sum: u64, entry| sum.saturating_add(entry.length));
    if unpacked > MAX_UNPACKED_BYTES || unpacked > FREE_BYTES.max(packed.saturating_mul(MAX_RATIO))
    {
        return Err(TransferError::TooMuch(format!(
            "the archive of {packed} bytes unpacks to {unpacked}; the maximum is {MAX_UNPACKED_BYTES} bytes, and from \
             {FREE_BYTES} on {MAX_RATIO} times its length"
        )));
    }
    Ok(())
}

fn put(
    directory: &ArchiveDirectory,
    entry: &ArchiveEntry,
    root: &UploadFolder,
) -> Result<(), TransferError> {
    let name = |part| Path::new(OsStr::from_bytes(part));
    let mut parts: Vec<&[u8]> = entry.name.split(|byte| *byte == b'/').collect();
    let last = parts.pop().unwrap_or_default();
    let mut parent = None;
    for part in parts {
        parent = Some(parent.as_ref().unwrap_or(root).folder(name(part))?);
    }
    let parent = parent.as_ref().unwrap_or(root);
    match entry.kind {
        ArchiveEntryKind::Folder => parent.folder(name(last)).map(drop),
        ArchiveEntryKind::File { mode } => parent.put(
            name(last),
            mode.unwrap_or(0o666),
            &mut EntryReader::open(directory, entry)?,
        ),
    }
}
