//! The functions that the fuzz targets in `action-server/fuzz` call. Built only for them and for
//! tests.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use protocol::action::EditAction;
use tokio::sync::mpsc::channel;

use crate::files::{self, ArchiveLimits, BodyPart, Files};
use crate::{shell, v0};

/// More than the parts of any archive that a target packs.
const MAX_PARTS: usize = 1024;

/// Limits of a tar archive.
#[derive(Debug, Clone, Copy)]
pub struct TarLimits {
    /// Maximum number of entries.
    pub entries: u64,
    /// Maximum size of the contents, in bytes.
    pub bytes: u64,
    /// Size of the contents that the archive may have however short it is, in bytes.
    pub free_bytes: u64,
}

/// Returns the output between the marks.
pub fn marks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    shell::fuzzing::marks(chunks)
}

/// Returns the folded text of a terminal's output.
pub fn fold<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
    shell::fuzzing::fold(chunks)
}

/// Edits a file, and returns the text of the observation.
pub fn edit(action: &EditAction) -> String {
    Files::unconfined().edit(action, Path::new("/")).content
}

/// Unpacks a tar archive into a folder.
///
/// # Errors
/// The archive is rejected.
pub fn unpack_tar(archive: &[u8], target: &Path, limits: TarLimits) -> io::Result<()> {
    let (parts, arriving) = channel(2);
    for part in [
        BodyPart::Part(Bytes::copy_from_slice(archive)),
        BodyPart::End,
    ] {
        parts.try_send(part).map_err(io::Error::other)?;
    }
    let limits = ArchiveLimits {
        entries: limits.entries,
        bytes: limits.bytes,
        free_bytes: limits.free_bytes,
    };
    files::unpack(&Files::unconfined(), target, arriving, limits).map_err(io::Error::other)
}

/// Packs a folder as a tar archive.
///
/// # Errors
/// The folder cannot be read.
pub fn pack_tar(folder: &Path) -> io::Result<Vec<u8>> {
    let (parts, mut arriving) = channel(MAX_PARTS);
    let folder = files::open_folder(&Files::unconfined(), folder).map_err(io::Error::other)?;
    files::pack(&folder, parts);
    let mut archive = Vec::new();
    while let Some(part) = arriving.blocking_recv() {
        archive.extend_from_slice(&part?);
    }
    Ok(archive)
}

/// Unpacks an upload of V0's routes into a folder.
///
/// # Errors
/// The archive is rejected.
pub fn unpack_zip(archive: &File, target: &Path) -> io::Result<()> {
    v0::fuzzing::unpack(archive, target).map_err(io::Error::other)
}

/// Packs a folder as a download of V0's routes.
///
/// # Errors
/// The folder cannot be read.
pub fn pack_zip(folder: &Path, output: impl Write) -> io::Result<()> {
    v0::fuzzing::pack(folder, output)
}
