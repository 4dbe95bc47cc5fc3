//! Unpacks an uploaded archive. What is wrong with its directory is found before anything is written; what is wrong with
//! an entry's data ends it there. Blocking.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::folder::Folder;
use crate::v0::archive::{Directory, Entry, EntryReader, Kind};
use crate::v0::transfer_error::TransferError;

/// All files of an archive together, unpacked.
const MAX_UNPACKED_BYTES: u64 = 4 << 30;

/// From here on an archive must not unpack to more than [`MAX_RATIO`] times its own length.
const FREE_BYTES: u64 = 256 << 20;
const MAX_RATIO: u64 = 100;

/// Puts all that `archive` holds into `destination`.
pub(in crate::v0) fn unpack(archive: &File, destination: &Path) -> Result<(), TransferError> {
    let directory = Directory::read(archive)?;
    check_length(archive, &directory)?;
    let root = Folder::make(destination)?;
    directory.entries.iter().try_for_each(|entry| put(archive, entry, &root))
}

fn check_length(archive: &File, directory: &Directory) -> Result<(), TransferError> {
    let packed = archive.metadata().map_err(|error| TransferError::Refused(error.to_string()))?.len();
    let unpacked = directory.entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.length));
    if unpacked > MAX_UNPACKED_BYTES || unpacked > FREE_BYTES.max(packed.saturating_mul(MAX_RATIO)) {
        return Err(TransferError::TooMuch(format!(
            "the archive of {packed} bytes unpacks to {unpacked}; more than {MAX_UNPACKED_BYTES} bytes, or from \
             {FREE_BYTES} on more than {MAX_RATIO} times its length, is taken for a bomb"
        )));
    }
    Ok(())
}

fn put(archive: &File, entry: &Entry, root: &Folder) -> Result<(), TransferError> {
    let name = |part| Path::new(OsStr::from_bytes(part));
    let mut parts: Vec<&[u8]> = entry.name.split(|byte| *byte == b'/').collect();
    let last = parts.pop().unwrap_or_default();
    let mut parent = None;
    for part in parts {
        parent = Some(parent.as_ref().unwrap_or(root).folder(name(part))?);
    }
    let parent = parent.as_ref().unwrap_or(root);
    match entry.kind {
        Kind::Folder => parent.folder(name(last)).map(drop),
        Kind::File { mode } => {
            parent.put(name(last), mode.unwrap_or(0o666), &mut EntryReader::open(archive, entry)?)
        }
    }
}
