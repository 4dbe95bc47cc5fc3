//! Converts the tar archive of a folder to a zip archive, part by part. Its comment names entries
//! that the sandbox leaves out.

use std::io::{self, Cursor, Read, Write};
use std::path::Component;
use std::time::Duration;

use engine::sandbox::{ByteSource, IncompleteArchive};
use futures_util::{StreamExt as _, stream};
use tar::EntryType;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_util::io::{StreamReader, SyncIoBridge};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, StreamWriter, ZipWriter};

/// Number of parts between the thread that packs and the client: one is sent, one is packed.
const QUEUED_PARTS: usize = 2;

/// Minimum size of a part, except for the last one.
const PART_BYTES: usize = 128 << 10;

/// Maximum number of entries, of bytes in their names, and of bytes before compression. The
/// directory at the end of a zip archive is kept in memory: about 250 bytes for each entry, and its
/// name twice.
const MAX_ENTRIES: usize = 200_000;
const MAX_NAME_BYTES: usize = 24 << 20;
const MAX_BYTES: u64 = 16 << 30;

/// Time for a client to receive a part.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of the target of a link.
const MAX_TARGET_BYTES: usize = 4096;

/// Packs the entries of a tar archive as a zip archive while that is read. Its source fails if it
/// is incomplete. The thread ends with the archive, or when the source is dropped.
///
/// # Errors
/// The first part cannot be packed.
pub(super) async fn zip(tree: ByteSource) -> io::Result<ByteSource> {
    let (sender, mut parts) = channel(QUEUED_PARTS);
    let handle = Handle::current();
    let tree = SyncIoBridge::new_with_handle(tree, handle.clone());
    tokio::task::spawn_blocking(move || {
        if let Err(error) = convert(
            tree,
            PartWriter {
                sender: sender.clone(),
                part: Vec::new(),
                handle,
            },
        ) {
            tracing::debug!(%error, "cannot pack a workspace");
            // Fails if the client has disconnected or does not read. Without the last part, the
            // archive is incomplete anyway.
            let _ = sender.try_send(Err(error));
        }
    });
    // An archive always has a part: its directory.
    let first = next_part(&mut parts).await.transpose()?.unwrap_or_default();
    let rest = stream::unfold(parts, async |mut parts| {
        let part = next_part(&mut parts).await?;
        Some((part.map(Cursor::new), parts))
    });
    let all = stream::iter([Ok(Cursor::new(first))]).chain(rest);
    Ok(Box::new(StreamReader::new(Box::pin(all))))
}

/// Returns the next part. `None` at the end of a complete archive.
async fn next_part(parts: &mut Receiver<io::Result<Vec<u8>>>) -> Option<io::Result<Vec<u8>>> {
    match parts.recv().await {
        Some(Ok(part)) if part.is_empty() => None,
        Some(part) => Some(part),
        None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
    }
}

fn convert(tree: impl Read, output: PartWriter) -> io::Result<()> {
    let mut archive = tar::Archive::new(tree);
    let mut zip = ZipWriter::new_stream(output);
    let (mut entry_count, mut name_bytes, mut byte_count) = (0, 0, 0_u64);
    for entry in archive.entries()? {
        let mut entry = entry?;
        entry_count += 1;
        byte_count = byte_count.saturating_add(entry.size());
        name_bytes += entry.path_bytes().len();
        if entry_count > MAX_ENTRIES || name_bytes > MAX_NAME_BYTES || byte_count > MAX_BYTES {
            let text = format!(
                "the workspace has more than {MAX_ENTRIES} entries, {MAX_NAME_BYTES} bytes in their paths, or {MAX_BYTES} bytes"
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        if let Some(name) = entry_name(&entry)? {
            add(&mut zip, &name, &mut entry)?;
        }
    }
    let skipped = IncompleteArchive::read_skipped(archive.into_inner())?;
    if skipped.count > 0 {
        let comment = IncompleteArchive(skipped).to_string();
        tracing::warn!(%comment, "the archive of a workspace is incomplete");
        zip.set_comment(comment)?;
    }
    zip.finish()?.into_inner().finish()
}

fn add<W: Write>(
    zip: &mut ZipWriter<StreamWriter<W>>,
    name: &str,
    entry: &mut tar::Entry<'_, impl Read>,
) -> io::Result<()> {
    let mode = entry.header().mode()? & 0o777;
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .unix_permissions(mode)
        .large_file(entry.size() >= u64::from(u32::MAX));
    match entry.header().entry_type() {
        EntryType::Directory => zip.add_directory(name, options)?,
        EntryType::Regular => {
            zip.start_file(name, options)?;
            let copied = io::copy(entry, zip)?;
            if copied < entry.size() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        EntryType::Symlink => {
            let target = entry.link_name_bytes().unwrap_or_default();
            let target = String::from_utf8_lossy(&target);
            if stays_inside(name, &target) {
                zip.add_symlink(name, target, options)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the name of an entry. `None` for the folder itself.
///
/// # Errors
/// The name would leave the folder that the archive is unpacked in. No honest sandbox sends it.
fn entry_name(entry: &tar::Entry<'_, impl Read>) -> io::Result<Option<String>> {
    let mut names = Vec::new();
    for component in entry.path()?.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "an entry is outside of the workspace",
                ));
            }
        }
    }
    // Windows would take it as a separator.
    let name = names.join("/").replace('\\', "_");
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// Whether the target of a link is in the archive's folder, provided that no other link is on the
/// way.
fn stays_inside(name: &str, target: &str) -> bool {
    if target.is_empty()
        || target.len() > MAX_TARGET_BYTES
        || target.starts_with('/')
        || target.contains('\\')
    {
        return false;
    }
    let mut depth = name.split('/').count() - 1;
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

/// Sends what is written in parts.
struct PartWriter {
    sender: Sender<io::Result<Vec<u8>>>,
    part: Vec<u8>,
    handle: Handle,
}

impl PartWriter {
    fn send(&mut self) -> io::Result<()> {
        let part = std::mem::take(&mut self.part);
        let sending = async { timeout(SEND_TIMEOUT, self.sender.send(Ok(part))).await };
        match self.handle.block_on(sending) {
            Ok(sent) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Sends the rest, and an empty part as the end of a complete archive.
    fn finish(mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            self.send()?;
        }
        self.send()
    }
}

impl Write for PartWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.part.extend_from_slice(bytes);
        if self.part.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
