//! Writes backups.

use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tar::{EntryType, Header};
use tempfile::SpooledTempFile;

use super::digest::{BLOCK_BYTES, HashingWriter};
use super::{
    BackupCounts, BackupFormat, BackupManifest, BackupPart, FORMAT_NAME, FORMAT_PATH,
    FORMAT_VERSION, MANIFEST_PATH,
};

/// Size of a part that is held in memory. A larger one is written to a temporary file, because its
/// size precedes it in the archive.
const MAX_MEMORY_BYTES: usize = 8 << 20;

/// A backup that is written. Incomplete until [`finish`](Self::finish) returns.
pub(crate) struct BackupWriter<W: Write> {
    output: HashingWriter<GzEncoder<W>>,
    counts: BackupCounts,
}

/// Collects the lines of a part.
pub(crate) struct PartWriter {
    part: BackupPart,
    lines: u64,
    content: SpooledTempFile,
}

impl PartWriter {
    /// Creates a part without lines. A large one gets a temporary file in a folder.
    pub(crate) fn new(part: BackupPart, folder: &Path) -> Self {
        Self {
            part,
            lines: 0,
            content: tempfile::spooled_tempfile_in(MAX_MEMORY_BYTES, folder),
        }
    }

    /// Appends a line.
    pub(crate) fn push(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        if line.len() > self.part.max_line_bytes() {
            let text = format!(
                "it has {} bytes, which is more than a backup can have",
                line.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        line.push(b'\n');
        self.lines += 1;
        self.content.write_all(&line)
    }
}

impl<W: Write> BackupWriter<W> {
    /// Starts a backup.
    pub(crate) fn new(output: W, created_at: String) -> io::Result<Self> {
        let output = HashingWriter::new(GzEncoder::new(output, Compression::fast()));
        let mut writer = Self {
            output,
            counts: BackupCounts::default(),
        };
        writer.write_description(
            FORMAT_PATH,
            &BackupFormat {
                format: FORMAT_NAME.to_owned(),
                version: FORMAT_VERSION,
                created_at,
                glovebox: env!("CARGO_PKG_VERSION").to_owned(),
            },
        )?;
        Ok(writer)
    }

    /// Writes a part. `guard` is called before each read, and ends the write if it fails.
    pub(crate) fn add(
        &mut self,
        part: PartWriter,
        guard: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let PartWriter {
            part,
            lines,
            mut content,
        } = part;
        let length = content.stream_position()?;
        content.seek(SeekFrom::Start(0))?;
        self.write_entry(
            &part.path(),
            length,
            Guarded {
                input: content,
                guard,
            },
        )?;
        self.counts.add(&part, lines);
        Ok(())
    }

    /// Writes the manifest and the end. Returns the output, and how much the backup has.
    pub(crate) fn finish(mut self) -> io::Result<(W, BackupCounts)> {
        let counts = self.counts;
        self.write_description(
            MANIFEST_PATH,
            &BackupManifest {
                counts,
                sha256: self.output.digest(),
            },
        )?;
        self.output.write_all(&[0; 2 * BLOCK_BYTES])?;
        Ok((self.output.into_inner().finish()?, counts))
    }

    fn write_description(&mut self, path: &str, description: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(description)?;
        self.write_entry(path, text.len() as u64, text.as_slice())
    }

    /// tar's builder is not used, because it writes the end of the archive when it is dropped.
    fn write_entry(&mut self, path: &str, length: u64, mut content: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_path(path)?;
        header.set_mode(0o600);
        header.set_size(length);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_cksum();
        self.output.write_all(header.as_bytes())?;
        let written = io::copy(&mut content, &mut self.output)?;
        if written != length {
            return Err(io::Error::other("a temporary file has changed"));
        }
        let excess = usize::try_from(length % BLOCK_BYTES as u64).unwrap_or_default();
        let padding = [0; BLOCK_BYTES];
        self.output.write_all(
            padding
                .get(..(BLOCK_BYTES - excess) % BLOCK_BYTES)
                .unwrap_or_default(),
        )
    }
}

struct Guarded<R, G> {
    input: R,
    guard: G,
}

impl<R: Read, G: Fn() -> io::Result<()>> Read for Guarded<R, G> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.guard)()?;
        self.input.read(buffer)
    }
}
