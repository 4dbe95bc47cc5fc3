//! Reads the data of an entry. Never returns more bytes than the directory states, and checks the
//! checksum at the end.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::directory::{u16_at, u32_at};
use super::{ArchiveEntry, ArchiveError};

const LOCAL_HEADER: u32 = 0x0403_4b50;
const LOCAL_HEADER_LENGTH: u64 = 30;
const BUFFER_BYTES: usize = 64 << 10;

/// Decompresses an entry. Errors of the kind [`io::ErrorKind::InvalidData`] mean that the archive
/// is invalid.
pub(in crate::v0) struct EntryReader<'a> {
    data: Box<dyn Read + 'a>,
    left: u64,
    expected: u32,
    seen: Crc,
}

impl<'a> EntryReader<'a> {
    pub(in crate::v0) fn open(file: &'a File, entry: &ArchiveEntry) -> Result<Self, ArchiveError> {
        let misplaced = || ArchiveError::Malformed("an entry is not at its recorded offset");
        let mut header = [0; LOCAL_HEADER_LENGTH as usize];
        let after_header = entry
            .offset
            .checked_add(LOCAL_HEADER_LENGTH)
            .filter(|end| *end <= entry.data_end);
        let after_header = after_header.ok_or_else(misplaced)?;
        file.read_exact_at(&mut header, entry.offset)?;
        let (Some(LOCAL_HEADER), Some(name), Some(extra)) =
            (u32_at(&header, 0), u16_at(&header, 26), u16_at(&header, 28))
        else {
            return Err(misplaced());
        };
        let start = after_header + u64::from(name) + u64::from(extra);
        if start
            .checked_add(entry.packed_length)
            .is_none_or(|end| end > entry.data_end)
        {
            return Err(misplaced());
        }
        let packed = BufReader::with_capacity(
            BUFFER_BYTES,
            FileSection {
                file,
                offset: start,
            }
            .take(entry.packed_length),
        );
        let data: Box<dyn Read> = if entry.is_deflated {
            Box::new(DeflateDecoder::new(packed))
        } else {
            Box::new(packed)
        };
        Ok(Self {
            data,
            left: entry.length,
            expected: entry.checksum,
            seen: Crc::new(),
        })
    }

    fn check_end(&mut self) -> io::Result<usize> {
        if self.data.read(&mut [0])? != 0 {
            return Err(invalid("an entry is longer than its recorded size"));
        }
        if self.seen.sum() != self.expected {
            return Err(invalid("an entry is damaged: its checksum is wrong"));
        }
        Ok(0)
    }
}

impl Read for EntryReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            return self.check_end();
        }
        let room = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = buffer.get_mut(..room).unwrap_or_default();
        match self.data.read(buffer)? {
            0 => Err(invalid("an entry is shorter than its recorded size")),
            count => {
                self.seen.update(buffer.get(..count).unwrap_or_default());
                self.left -= count as u64;
                Ok(count)
            }
        }
    }
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Reads a file from an offset on, without moving its cursor.
struct FileSection<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FileSection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
