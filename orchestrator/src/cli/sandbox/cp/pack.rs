//! Packs a folder of this machine into an archive, which is sent while it is created. Links are not followed. Links that
//! lead out of the folder are skipped, and so are special files.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::sandbox::ByteSource;
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::io::StreamReader;

use super::{CHUNK_BYTES, SkippedEntries, links};

/// Maximum number of chunks between the disk and the connection: one for each side, and two because their speeds vary.
const MAX_QUEUED_CHUNKS: usize = 4;

/// Returns the archive, and a task that returns the skipped entries after the archive was read.
pub(super) fn pack(folder: PathBuf) -> (ByteSource, JoinHandle<SkippedEntries>) {
    let (chunks, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    let packing = spawn_blocking(move || {
        let mut skipped = SkippedEntries::default();
        let output = ChunkWriter { chunks: chunks.clone(), chunk: Vec::with_capacity(CHUNK_BYTES) };
        if let Err(error) = write(&folder, output, &mut skipped) {
            // A truncated archive must not look complete. Fails only if the reader has gone.
            let _ = chunks.blocking_send(Err(error));
        }
        skipped
    });
    let chunks =
        futures_util::stream::unfold(receiver, |mut receiver: mpsc::Receiver<io::Result<Bytes>>| async {
            receiver.recv().await.map(|chunk| (chunk, receiver))
        });
    (Box::new(StreamReader::new(Box::pin(chunks))), packing)
}

fn write(folder: &Path, output: ChunkWriter, skipped: &mut SkippedEntries) -> io::Result<()> {
    let mut archive = Builder::new(output);
    let mut pending = vec![PathBuf::new()];
    while let Some(below) = pending.pop() {
        let path = folder.join(&below);
        let context = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let metadata = if below == Path::new("") { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let metadata = match metadata {
            // Was deleted after its folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata.map_err(context)?,
        };
        if metadata.is_dir() {
            if below != Path::new("") {
                let mut header = entry_header(&metadata, EntryType::Directory, 0);
                archive.append_data(&mut header, &below, io::empty())?;
            }
            let mut names: Vec<_> =
                fs::read_dir(&path).map_err(context)?.collect::<io::Result<_>>().map_err(context)?;
            names.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            pending.extend(names.into_iter().map(|entry| below.join(entry.file_name())));
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(context)?;
            if links::stays(&below, &target) {
                archive.append_link(&mut entry_header(&metadata, EntryType::Symlink, 0), &below, target)?;
            } else {
                skipped.add(&below, "a link that leads out of the folder");
            }
        } else if metadata.is_file() {
            let file = File::open(&path).map_err(context)?;
            let length = metadata.len();
            // A file that shrinks while it is read is padded with zeros, so that the archive stays valid.
            let content = file.chain(io::repeat(0)).take(length);
            archive.append_data(&mut entry_header(&metadata, EntryType::Regular, length), &below, content)?;
        } else {
            skipped.add(&below, "neither a file, a folder nor a link");
        }
    }
    archive.into_inner()?.flush()
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
        self.chunks.blocking_send(Ok(chunk.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
