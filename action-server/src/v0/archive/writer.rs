//! Writes an archive sequentially, without seeking: lengths and checksums follow the data.

use std::io::{self, Read, Write};
use std::mem;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

/// Maximum offset and length, so that no zip64 fields are needed for them.
const MAX_OFFSET: u64 = u32::MAX as u64;

const BUFFER_BYTES: usize = 64 << 10;

/// UTF-8 names, lengths after the data.
const FLAGS: u16 = 0x0808;
const DEFLATED: u16 = 8;
const VERSION: u16 = 20;
const LONG_VERSION: u16 = 45;
const UNIX: u16 = 3 << 8;
/// The first of January 1980, the earliest date of the format.
const DATE: u16 = 0x21;

/// An archive that is being written.
pub(in crate::v0) struct ArchiveWriter<W: Write> {
    output: CountingWriter<W>,
    /// The directory so far, which is written at the end.
    directory: Vec<u8>,
    entries: u64,
    /// Reused, because creating one for each of many small files would be slow.
    packer: Compress,
    packed: Vec<u8>,
    buffer: Vec<u8>,
}

impl<W: Write> ArchiveWriter<W> {
    pub(in crate::v0) fn new(output: W) -> Self {
        Self {
            output: CountingWriter { output, written: 0 },
            directory: Vec::new(),
            entries: 0,
            packer: Compress::new(Compression::fast(), false),
            packed: Vec::with_capacity(BUFFER_BYTES),
            buffer: vec![0; BUFFER_BYTES],
        }
    }

    /// Adds a file with its permissions.
    pub(in crate::v0) fn add(
        &mut self,
        name: &str,
        mode: u32,
        content: &mut impl Read,
    ) -> io::Result<()> {
        let offset = self.offset()?;
        let name_length = u16::try_from(name.len())
            .map_err(|_| io::Error::other("a name is too long for an archive"))?;
        let mut header = Vec::new();
        put(
            &mut header,
            &[&0x0403_4b50_u32.to_le_bytes(), &VERSION.to_le_bytes()],
        );
        put(
            &mut header,
            &[
                &FLAGS.to_le_bytes(),
                &DEFLATED.to_le_bytes(),
                &[0; 2],
                &DATE.to_le_bytes(),
            ],
        );
        put(
            &mut header,
            &[
                &[0; 12],
                &name_length.to_le_bytes(),
                &[0; 2],
                name.as_bytes(),
            ],
        );
        self.output.write_all(&header)?;
        let start = self.output.written;
        let (checksum, length) = self.deflate(content)?;
        let packed = short(self.output.written - start)?;
        let length = short(length)?;
        let data_descriptor = [
            checksum.to_le_bytes(),
            packed.to_le_bytes(),
            length.to_le_bytes(),
        ]
        .concat();
        self.output.write_all(&0x0807_4b50_u32.to_le_bytes())?;
        self.output.write_all(&data_descriptor)?;

        let directory = &mut self.directory;
        put(
            directory,
            &[
                &0x0201_4b50_u32.to_le_bytes(),
                &(UNIX | VERSION).to_le_bytes(),
                &VERSION.to_le_bytes(),
            ],
        );
        put(
            directory,
            &[
                &FLAGS.to_le_bytes(),
                &DEFLATED.to_le_bytes(),
                &[0; 2],
                &DATE.to_le_bytes(),
                &data_descriptor,
            ],
        );
        put(
            directory,
            &[
                &name_length.to_le_bytes(),
                &[0; 8],
                &(mode << 16).to_le_bytes(),
            ],
        );
        put(directory, &[&offset.to_le_bytes(), name.as_bytes()]);
        self.entries += 1;
        Ok(())
    }

    fn deflate(&mut self, content: &mut impl Read) -> io::Result<(u32, u64)> {
        let (mut checksum, mut length) = (Crc::new(), 0);
        let mut buffer = mem::take(&mut self.buffer);
        self.packer.reset();
        loop {
            let count = match content.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let read = buffer.get(..count).unwrap_or_default();
            checksum.update(read);
            length += count as u64;
            self.pack(read)?;
            if count == 0 {
                self.buffer = buffer;
                return Ok((checksum.sum(), length));
            }
        }
    }

    /// Compresses a part of an entry's data. An empty part is its end.
    fn pack(&mut self, data: &[u8]) -> io::Result<()> {
        let flush = if data.is_empty() {
            FlushCompress::Finish
        } else {
            FlushCompress::None
        };
        let mut rest = data;
        loop {
            let taken_before = self.packer.total_in();
            let status = self.packer.compress_vec(rest, &mut self.packed, flush)?;
            let taken = usize::try_from(self.packer.total_in() - taken_before).unwrap_or_default();
            rest = rest.get(taken..).unwrap_or_default();
            self.output.write_all(&self.packed)?;
            self.packed.clear();
            if status == Status::StreamEnd || (rest.is_empty() && !data.is_empty()) {
                return Ok(());
            }
        }
    }

    /// Writes the directory. Without it, the archive cannot be read.
    pub(in crate::v0) fn finish(mut self) -> io::Result<()> {
        let offset = self.offset()?;
        self.output.write_all(&self.directory)?;
        let length = short(self.directory.len() as u64)?;
        let long_offset = self.offset()?;
        let count = u16::try_from(self.entries)
            .ok()
            .filter(|count| *count != u16::MAX);
        let mut end = Vec::new();
        if count.is_none() {
            put(
                &mut end,
                &[&0x0606_4b50_u32.to_le_bytes(), &44_u64.to_le_bytes()],
            );
            put(
                &mut end,
                &[
                    &(UNIX | LONG_VERSION).to_le_bytes(),
                    &LONG_VERSION.to_le_bytes(),
                    &[0; 8],
                ],
            );
            put(
                &mut end,
                &[&self.entries.to_le_bytes(), &self.entries.to_le_bytes()],
            );
            put(
                &mut end,
                &[
                    &u64::from(length).to_le_bytes(),
                    &u64::from(offset).to_le_bytes(),
                ],
            );
            put(
                &mut end,
                &[
                    &0x0706_4b50_u32.to_le_bytes(),
                    &[0; 4],
                    &u64::from(long_offset).to_le_bytes(),
                ],
            );
            put(&mut end, &[&1_u32.to_le_bytes()]);
        }
        let count = count.unwrap_or(u16::MAX).to_le_bytes();
        put(
            &mut end,
            &[&0x0605_4b50_u32.to_le_bytes(), &[0; 4], &count, &count],
        );
        put(
            &mut end,
            &[&length.to_le_bytes(), &offset.to_le_bytes(), &[0; 2]],
        );
        self.output.write_all(&end)?;
        self.output.flush()
    }

    fn offset(&self) -> io::Result<u32> {
        short(self.output.written)
    }
}

fn short(length: u64) -> io::Result<u32> {
    let fits = u32::try_from(length)
        .ok()
        .filter(|length| u64::from(*length) < MAX_OFFSET);
    fits.ok_or_else(|| io::Error::other("the archive is longer than 4 GiB"))
}

fn put(into: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| into.extend_from_slice(part));
}

/// Counts written bytes.
struct CountingWriter<W> {
    output: W,
    written: u64,
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.output.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
