//! Packs a folder into an archive. It contains files, folders and links, but no pipes, sockets and
//! devices. Links are not followed. If the length of a file changes concurrently, its content is
//! cut or padded, so that the archive stays valid.

use std::fs::{self, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bytes::Bytes;
use ignore::WalkBuilder;
use tar::{Builder, EntryType, Header, HeaderMode};
use tokio::sync::mpsc::Sender;

use super::output::ArchiveOutput;
use crate::files::error::FileError;
use crate::files::resolved_path::ResolvedPath;
use crate::files::{Files, open};

/// Sends the archive in parts. An error is sent as the last part, because an incomplete archive
/// must not look complete.
pub(crate) fn pack(folder: &ResolvedPath, parts: Sender<io::Result<Bytes>>) {
    let failed = match write(folder, ArchiveOutput::new(parts.clone())) {
        Ok(()) => return,
        Err(error) => error,
    };
    tracing::debug!(%failed, "cannot pack a folder");
    // Fails if the client has disconnected.
    _ = parts.blocking_send(Err(failed));
}

fn write(folder: &ResolvedPath, output: ArchiveOutput) -> io::Result<()> {
    let mut archive = Builder::new(output);
    // All entries, without filters, ordered by name.
    let all = WalkBuilder::new(folder.path())
        .standard_filters(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    for entry in all.filter_map(Result::ok) {
        let below = entry
            .path()
            .strip_prefix(folder.path())
            .unwrap_or(entry.path());
        if !below.as_os_str().is_empty() {
            add(&mut archive, folder, below)?;
        }
    }
    archive.into_inner()?.flush()
}

/// Adds an entry. Skips one that was removed or may not be read.
fn add(
    archive: &mut Builder<ArchiveOutput>,
    folder: &ResolvedPath,
    below: &Path,
) -> io::Result<()> {
    let Ok(resolved) = folder.entry(below) else {
        return Ok(());
    };
    let Ok(metadata) = fs::symlink_metadata(resolved.path()) else {
        return Ok(());
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        archive.append_data(
            &mut header(&metadata, EntryType::Directory, 0),
            below,
            io::empty(),
        )
    } else if kind.is_symlink() {
        let Ok(target) = fs::read_link(resolved.path()) else {
            return Ok(());
        };
        archive.append_link(&mut header(&metadata, EntryType::Symlink, 0), below, target)
    } else if kind.is_file()
        && let Ok((file, metadata)) = open::regular(&resolved)
    {
        let length = metadata.len();
        let content = file.chain(io::repeat(0)).take(length);
        archive.append_data(
            &mut header(&metadata, EntryType::Regular, length),
            below,
            content,
        )
    } else {
        Ok(())
    }
}

fn header(metadata: &Metadata, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(metadata, HeaderMode::Complete);
    // Set-user-id bits would be rejected when the archive is unpacked.
    header.set_mode(metadata.mode() & 0o1777);
    header.set_entry_type(kind);
    header.set_size(length);
    header
}

/// Opens the folder, so that errors are reported before the response starts.
pub(crate) fn open_folder(files: &Files, path: &Path) -> Result<ResolvedPath, FileError> {
    let folder = files.resolve(path)?;
    match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(folder),
        Ok(_) => Err(FileError::Unfit {
            path: path.to_owned(),
            problem: "is not a folder",
        }),
        Err(error) => Err(FileError::io("inspect", path, error)),
    }
}
