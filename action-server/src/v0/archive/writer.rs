//! Writes an archive sequentially, without seeking: lengths and checksums follow the data.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use rawzip::path::EntryPath;
use rawzip::{CompressionMethod, ZipArchiveWriter};

/// An archive that is being written.
pub(in crate::v0) struct ArchiveWriter<W: Write> {
    archive: ZipArchiveWriter<W>,
    /// Reused, because creating one takes ten times as long as compressing a small file.
    encoder: DeflateEncoder<Vec<u8>>,
}

impl<W: Write> ArchiveWriter<W> {
    pub(in crate::v0) fn new(output: W) -> Self {
        Self {
            archive: ZipArchiveWriter::new(output),
            encoder: DeflateEncoder::new(Vec::new(), Compression::fast()),
        }
    }

    /// Adds a file with its permissions.
    pub(in crate::v0) fn add(
        &mut self,
        name: &str,
        mode: u32,
        content: &mut impl Read,
    ) -> io::Result<()> {
        // rawzip replaces backslashes in names that it marks as UTF-8.
        let path = if name.is_ascii() {
            EntryPath::verbatim(name.as_bytes())
        } else {
            EntryPath::conformant(name)
        };
        let file = self
            .archive
            .new_file(path)
            .compression_method(CompressionMethod::DEFLATE)
            .unix_permissions(mode);
        let (mut entry, config) = file.start().map_err(io::Error::other)?;
        let mut data = config.wrap(EntryEncoder {
            encoder: &mut self.encoder,
            output: &mut entry,
        });
        io::copy(content, &mut data)?;
        let (_, descriptor) = data.finish().map_err(io::Error::other)?;
        entry.write_all(&self.encoder.reset(Vec::new())?)?;
        entry.finish(descriptor).map_err(io::Error::other)?;
        Ok(())
    }

    /// Writes the directory. Without it, the archive cannot be read.
    pub(in crate::v0) fn finish(self) -> io::Result<()> {
        self.archive.finish().map(drop).map_err(io::Error::other)
    }
}

/// Compresses the data of an entry.
struct EntryEncoder<'a, O> {
    encoder: &'a mut DeflateEncoder<Vec<u8>>,
    output: O,
}

impl<O: Write> Write for EntryEncoder<'_, O> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.encoder.write_all(bytes)?;
        self.output.write_all(self.encoder.get_ref())?;
        self.encoder.get_mut().clear();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
