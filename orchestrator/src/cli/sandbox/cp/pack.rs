//! Packs a folder of this machine into an archive, which is sent while it is created. Links are not
//! followed, also if they replace a folder meanwhile. Links that lead out of the folder are
//! skipped, and so are special files and what this user may not read.

use std::fs::Metadata;
use std::io::{self, Read as _, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bytes::Bytes;
use engine::sandbox::ByteSource;
use protocol::sandbox_api::SkippedEntries;
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::io::StreamReader;

use super::{CHUNK_BYTES, links};
use crate::untrusted_folder::{FolderWalk, Node, Step};

/// Maximum number of chunks between the disk and the connection: one for each side, and two because
/// their speeds vary.
const MAX_QUEUED_CHUNKS: usize = 4;

/// Returns the archive, and a task that returns the skipped entries after the archive was read.
pub(super) fn pack(folder: OwnedFd) -> (ByteSource, JoinHandle<SkippedEntries>) {
    let (chunks, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let packing = spawn_blocking(move || {
        let mut skipped = SkippedEntries::default();
        let output = ChunkWriter {
            chunks: chunks.clone(),
            chunk: Vec::with_capacity(CHUNK_BYTES),
        };
        if let Err(error) = write(folder, output, &mut skipped) {
            // A truncated archive must not look complete. Fails only if the reader has gone.
            let _ = chunks.blocking_send(Err(error));
        }
        skipped
    });
    let chunks = futures_util::stream::unfold(
        receiver,
        |mut receiver: mpsc::Receiver<io::Result<Bytes>>| async {
            receiver.recv().await.map(|chunk| (chunk, receiver))
        },
    );
    (Box::new(StreamReader::new(Box::pin(chunks))), packing)
}

fn write(folder: OwnedFd, output: ChunkWriter, skipped: &mut SkippedEntries) -> io::Result<()> {
    let mut archive = Builder::new(output);
    for step in FolderWalk::new(folder)? {
        match step? {
            Step::Enter(path, node) => {
                let mut header = entry_header(node.metadata(), EntryType::Directory, 0);
                archive.append_data(&mut header, &path, io::empty())?;
            }
            Step::Entry(path, node) => {
                append(&mut archive, &path, &node, skipped).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
            }
            Step::Denied(path, error) => skipped.add(&path, &error.to_string()),
            Step::Leave => {}
        }
    }
    archive.into_inner()?.flush()
}

/// Appends a file or a link.
fn append(
    archive: &mut Builder<ChunkWriter>,
    path: &Path,
    node: &Node,
    skipped: &mut SkippedEntries,
) -> io::Result<()> {
    let metadata = node.metadata();
    if metadata.is_symlink() {
        let target = node.link_target()?;
        if links::stays(path, &target) {
            archive.append_link(
                &mut entry_header(metadata, EntryType::Symlink, 0),
                path,
                target,
            )?;
        } else {
            skipped.add(path, "a link that leads out of the folder");
        }
    } else if metadata.is_file() {
        let length = metadata.len();
        let file = match node.open_file() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skipped.add(path, &error.to_string());
                return Ok(());
            }
            file => file?,
        };
        // A file that shrinks while it is read is padded with zeros, so that the archive stays
        // valid.
        let content = file.chain(io::repeat(0)).take(length);
        archive.append_data(
            &mut entry_header(metadata, EntryType::Regular, length),
            path,
            content,
        )?;
    } else {
        skipped.add(path, "neither a file, a folder nor a link");
    }
    Ok(())
}

/// Returns a header without an owner, and without the setuid, setgid and sticky bits.
fn entry_header(metadata: &Metadata, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(length);
    header
}

/// Sends an archive in chunks.
struct ChunkWriter {
    chunks: mpsc::Sender<io::Result<Bytes>>,
    chunk: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_BYTES));
        if chunk.is_empty() {
            return Ok(());
        }
        self.chunks
            .blocking_send(Ok(chunk.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::io::AsyncReadExt as _;

    use super::super::local_path::Source;
    use super::*;

    #[tokio::test]
    async fn link_that_replaces_a_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (parent, content) in [("outside", "secret"), ("root/folder", "inside")] {
            std::fs::create_dir_all(at(parent)).unwrap();
            std::fs::write(at(parent).join("key"), content).unwrap();
        }
        // Longer than the queue, so that packing waits in the folder.
        let length = 2 * MAX_QUEUED_CHUNKS * CHUNK_BYTES;
        std::fs::write(at("root/folder/a"), vec![0; length]).unwrap();
        let Source::Folder(root) = Source::open(&at("root")).unwrap() else {
            panic!()
        };
        let (mut source, packing) = pack(root);
        let mut archive = vec![0; 1024];
        source.read_exact(&mut archive).await.unwrap();
        std::fs::rename(at("root/folder"), at("moved")).unwrap();
        symlink(at("outside"), at("root/folder")).unwrap();
        source.read_to_end(&mut archive).await.unwrap();
        assert_eq!(packing.await.unwrap(), SkippedEntries::default());
        let mut archive = tar::Archive::new(&archive[..]);
        let mut keys = archive
            .entries()
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.path().unwrap().ends_with("key"));
        assert_eq!(io::read_to_string(keys.next().unwrap()).unwrap(), "inside");
    }
}
