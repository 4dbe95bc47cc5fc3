//! A folder becomes an archive. Files, folders and links are in it; pipes, sockets and devices are not. Links are not
//! followed. A file that changes meanwhile has the length that it had at first, so that the archive stays whole.

use std::fs::{self, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bytes::Bytes;
use ignore::WalkBuilder;
use tar::{Builder, EntryType, Header, HeaderMode};
use tokio::sync::mpsc::Sender;

use super::output::Output;
use crate::files::error::FileError;
use crate::files::place::Place;
use crate::files::{Files, open};

/// Sends the archive in parts. What fails in between is the last part: an archive that ends early must not look whole.
pub(crate) fn pack(folder: &Place, parts: Sender<io::Result<Bytes>>) {
    let failed = match write(folder, Output::to(parts.clone())) {
        Ok(()) => return,
        Err(error) => error,
    };
    tracing::debug!(%failed, "packing a folder");
    // Nobody to tell it to, then.
    _ = parts.blocking_send(Err(failed));
}

fn write(folder: &Place, output: Output) -> io::Result<()> {
    let mut archive = Builder::new(output);
    // The archive is all that there is, in the order of the names.
    let all = WalkBuilder::new(folder.path())
        .standard_filters(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    for entry in all.filter_map(Result::ok) {
        let below = entry.path().strip_prefix(folder.path()).unwrap_or(entry.path());
        if !below.as_os_str().is_empty() {
            add(&mut archive, folder, below)?;
        }
    }
    archive.into_inner()?.flush()
}

/// What is gone, or may not be read, is left out.
fn add(archive: &mut Builder<Output>, folder: &Place, below: &Path) -> io::Result<()> {
    let Ok(place) = folder.entry(below) else { return Ok(()) };
    let Ok(metadata) = fs::symlink_metadata(place.path()) else { return Ok(()) };
    let kind = metadata.file_type();
    if kind.is_dir() {
        archive.append_data(&mut header(&metadata, EntryType::Directory, 0), below, io::empty())
    } else if kind.is_symlink() {
        let Ok(target) = fs::read_link(place.path()) else { return Ok(()) };
        archive.append_link(&mut header(&metadata, EntryType::Symlink, 0), below, target)
    } else if kind.is_file()
        && let Ok((file, metadata)) = open::regular(&place)
    {
        let length = metadata.len();
        let content = file.chain(io::repeat(0)).take(length);
        archive.append_data(&mut header(&metadata, EntryType::Regular, length), below, content)
    } else {
        Ok(())
    }
}

fn header(metadata: &Metadata, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(metadata, HeaderMode::Complete);
    // Who unpacks it gives such bits to nobody.
    header.set_mode(metadata.mode() & 0o1777);
    header.set_entry_type(kind);
    header.set_size(length);
    header
}

/// Refused before the answer begins.
pub(crate) fn check(files: &Files, path: &Path) -> Result<Place, FileError> {
    let folder = files.found(path)?;
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(folder),
        Ok(_) => Err(FileError::Unfit { path: path.to_owned(), problem: "is not a folder" }),
        Err(error) => Err(FileError::io("looking at", path, error)),
    }
}
