//! Packs a folder into an archive. It contains files, folders and links, but no pipes, sockets and
//! devices. Links are not followed. If the length of a file changes concurrently, its content is
//! cut or padded, so that the archive stays valid. Entries that cannot be read are left out and
//! reported. Entries that were removed concurrently are not.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ignore::WalkBuilder;
use protocol::sandbox_api::SkippedEntries;
use tar::{Builder, EntryType, Header, HeaderMode};
use tokio::sync::mpsc::Sender;

use super::output::ArchiveOutput;
use crate::files::error::FileError;
use crate::files::resolved_path::ResolvedPath;
use crate::files::{Files, PART_BYTES, open};

/// An open entry.
enum OpenEntry {
    Folder(Metadata),
    Link(Metadata, PathBuf),
    File {
        metadata: Metadata,
        /// The first bytes. Reading them has shown that the file can be read.
        start: Vec<u8>,
        rest: File,
    },
}

/// Sends the archive in parts, and returns the entries that it leaves out. An error is sent as the
/// last part, because an incomplete archive must not look complete.
pub(crate) fn pack(folder: &ResolvedPath, parts: Sender<io::Result<Bytes>>) -> SkippedEntries {
    let mut skipped = SkippedEntries::default();
    if let Err(failed) = write(folder, ArchiveOutput::new(parts.clone()), &mut skipped) {
        tracing::debug!(%failed, "cannot pack a folder");
        // Fails if the client has disconnected.
        _ = parts.blocking_send(Err(failed));
    }
    skipped
}

fn write(
    folder: &ResolvedPath,
    output: ArchiveOutput,
    skipped: &mut SkippedEntries,
) -> io::Result<()> {
    let mut archive = Builder::new(output);
    // All entries, without filters, ordered by name.
    let all = WalkBuilder::new(folder.path())
        .standard_filters(false)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    let below = |path: &Path| path.strip_prefix(folder.path()).unwrap_or(path).to_owned();
    for entry in all {
        let below = match entry {
            Ok(entry) => below(entry.path()),
            Err(error) => {
                add_unlisted(&error, below, skipped);
                continue;
            }
        };
        if below.as_os_str().is_empty() {
            continue;
        }
        match open_entry(folder, &below) {
            Ok(entry) => append(&mut archive, &below, entry, skipped)?,
            // Was removed after it was listed.
            Err(FileError::NotFound(_)) => {}
            Err(FileError::Special(_)) => {
                skipped.add(&below, "neither a file, a folder nor a link");
            }
            Err(FileError::Io { source, .. }) => skipped.add(&below, &source.to_string()),
            Err(error) => skipped.add(&below, &error.to_string()),
        }
    }
    archive.into_inner()?.flush()
}

/// Adds a folder that cannot be listed.
fn add_unlisted(
    error: &ignore::Error,
    below: impl Fn(&Path) -> PathBuf,
    skipped: &mut SkippedEntries,
) {
    let Some(cause) = error.io_error() else {
        return skipped.add(Path::new(""), &error.to_string());
    };
    if cause.kind() != io::ErrorKind::NotFound {
        // The error of the walk repeats the path.
        let innermost = cause.get_ref().and_then(|cause| cause.source());
        let reason = innermost.map_or_else(|| cause.to_string(), ToString::to_string);
        skipped.add(&below(path_of(error)), &reason);
    }
}

fn path_of(error: &ignore::Error) -> &Path {
    match error {
        ignore::Error::WithPath { path, .. } => path,
        ignore::Error::WithDepth { err, .. } => path_of(err),
        _ => Path::new(""),
    }
}

fn open_entry(folder: &ResolvedPath, below: &Path) -> Result<OpenEntry, FileError> {
    let failed = |error| FileError::io("read", below, error);
    let resolved = folder.entry(below).map_err(failed)?;
    let metadata = fs::symlink_metadata(resolved.path()).map_err(failed)?;
    match metadata.file_type() {
        kind if kind.is_dir() => Ok(OpenEntry::Folder(metadata)),
        kind if kind.is_symlink() => {
            let target = fs::read_link(resolved.path()).map_err(failed)?;
            Ok(OpenEntry::Link(metadata, target))
        }
        kind if kind.is_file() => {
            let (rest, metadata) = open::regular(&resolved)?;
            let mut start = Vec::new();
            let start_length = metadata.len().min(PART_BYTES as u64);
            (&rest)
                .take(start_length)
                .read_to_end(&mut start)
                .map_err(failed)?;
            Ok(OpenEntry::File {
                metadata,
                start,
                rest,
            })
        }
        _ => Err(FileError::Special(below.to_owned())),
    }
}

fn append(
    archive: &mut Builder<ArchiveOutput>,
    below: &Path,
    entry: OpenEntry,
    skipped: &mut SkippedEntries,
) -> io::Result<()> {
    match entry {
        OpenEntry::Folder(metadata) => archive.append_data(
            &mut header(&metadata, EntryType::Directory, 0),
            below,
            io::empty(),
        ),
        OpenEntry::Link(metadata, target) => {
            archive.append_link(&mut header(&metadata, EntryType::Symlink, 0), below, target)
        }
        OpenEntry::File {
            metadata,
            start,
            rest,
        } => {
            let length = metadata.len();
            let mut rest = FileRest {
                file: rest,
                failure: None,
            };
            let content = start.as_slice().chain(&mut rest).chain(io::repeat(0));
            archive.append_data(
                &mut header(&metadata, EntryType::Regular, length),
                below,
                content.take(length),
            )?;
            if let Some(failure) = rest.failure {
                let reason = format!("a part of it, which is replaced by zeros: {failure}");
                skipped.add(below, &reason);
            }
            Ok(())
        }
    }
}

/// The rest of a file whose start is in the archive. It ends at an error, which is stored.
struct FileRest {
    file: File,
    failure: Option<io::Error>,
}

impl Read for FileRest {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.file.read(buffer) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.failure = Some(error);
                Ok(0)
            }
            read => read,
        }
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
        Ok(metadata) if metadata.is_dir() => match fs::read_dir(folder.path()) {
            Ok(_) => Ok(folder),
            Err(error) => Err(FileError::io("list", path, error)),
        },
        Ok(_) => Err(FileError::Unfit {
            path: path.to_owned(),
            problem: "is not a folder",
        }),
        Err(error) => Err(FileError::io("inspect", path, error)),
    }
}
