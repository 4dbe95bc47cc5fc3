//! Reads the data of an entry. The length and the checksum in the directory are checked.

use std::io::{self, BufReader, Read};

use flate2::bufread::DeflateDecoder;

use super::{ArchiveDirectory, ArchiveEntry, ArchiveError, MISPLACED, problem};

const BUFFER_BYTES: usize = 64 << 10;

/// Decompresses an entry. Errors of the kind [`io::ErrorKind::InvalidData`] mean that the archive
/// is invalid.
pub(in crate::v0) struct EntryReader<'a>(Box<dyn Read + 'a>);

impl<'a> EntryReader<'a> {
    pub(in crate::v0) fn open(
        directory: &'a ArchiveDirectory,
        entry: &ArchiveEntry,
    ) -> Result<Self, ArchiveError> {
        let found = directory.archive.get_entry(entry.location)?;
        let (_, end) = found.compressed_data_range();
        if end > directory.archive.directory_offset() {
            return Err(ArchiveError::Malformed(MISPLACED));
        }
        let packed = BufReader::with_capacity(BUFFER_BYTES, found.reader());
        Ok(Self(if entry.is_deflated {
            Box::new(found.verifying_reader(DeflateDecoder::new(packed)))
        } else {
            Box::new(found.verifying_reader(packed))
        }))
    }
}

impl Read for EntryReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| {
            let found = error.get_ref().and_then(|error| error.downcast_ref());
            match found.map(rawzip::Error::kind) {
                Some(kind) => io::Error::new(error.kind(), problem(kind)),
                None => error,
            }
        })
    }
}
