//! A folder of this machine becomes an archive that is sent while it is made. Links are not followed; those that would lead
//! out of the folder, and what is neither file, folder nor link, are left out.

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

use super::{LeftOut, PIECE, links};

/// Pieces between the disk and the wire: one on each side, and some for an uneven pace.
const PIECES: usize = 4;

/// The archive, and what was left out once it was read to its end.
pub(super) fn pack(folder: PathBuf) -> (ByteSource, JoinHandle<LeftOut>) {
    let (pieces, arriving) = mpsc::channel(PIECES);
    let packing = spawn_blocking(move || {
        let mut left_out = LeftOut::default();
        let output = Output { pieces: pieces.clone(), piece: Vec::with_capacity(PIECE) };
        if let Err(error) = write(&folder, output, &mut left_out) {
            // An archive that ends early must not look whole. Nobody to tell it to: nobody reads it.
            let _ = pieces.blocking_send(Err(error));
        }
        left_out
    });
    let pieces =
        futures_util::stream::unfold(arriving, |mut arriving: mpsc::Receiver<io::Result<Bytes>>| async {
            arriving.recv().await.map(|piece| (piece, arriving))
        });
    (Box::new(StreamReader::new(Box::pin(pieces))), packing)
}

fn write(folder: &Path, output: Output, left_out: &mut LeftOut) -> io::Result<()> {
    let mut archive = Builder::new(output);
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let path = folder.join(&below);
        let said = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let metadata = if below == Path::new("") { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let metadata = match metadata {
            // Gone meanwhile: it is not in the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata.map_err(said)?,
        };
        if metadata.is_dir() {
            if below != Path::new("") {
                let mut header = header(&metadata, EntryType::Directory, 0);
                archive.append_data(&mut header, &below, io::empty())?;
            }
            let mut names: Vec<_> =
                fs::read_dir(&path).map_err(said)?.collect::<io::Result<_>>().map_err(said)?;
            names.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            waiting.extend(names.into_iter().map(|entry| below.join(entry.file_name())));
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(said)?;
            if links::stays(&below, &target) {
                archive.append_link(&mut header(&metadata, EntryType::Symlink, 0), &below, target)?;
            } else {
                left_out.add(&below, "a link that leads out of the folder");
            }
        } else if metadata.is_file() {
            let file = File::open(&path).map_err(said)?;
            let length = metadata.len();
            // One that shrinks meanwhile has zeros at its end: the archive stays whole.
            let content = file.chain(io::repeat(0)).take(length);
            archive.append_data(&mut header(&metadata, EntryType::Regular, length), &below, content)?;
        } else {
            left_out.add(&below, "neither a file, a folder nor a link");
        }
    }
    archive.into_inner()?.flush()
}

/// Without owner, and without bits that give rights away.
fn header(metadata: &Metadata, kind: EntryType, length: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(length);
    header
}

struct Output {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
