//! The directory of a zip archive. All offsets and lengths are checked against the file before they
//! are used.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::{ArchiveError, MAX_ENTRIES};

/// Maximum size of the directory, which is in memory while it is read.
const MAX_DIRECTORY_BYTES: u64 = 16 << 20;

const END_LENGTH: usize = 22;
const END: u32 = 0x0605_4b50;
const LONG_END: u32 = 0x0606_4b50;
const LONG_END_LOCATOR: u32 = 0x0706_4b50;
const LONG_END_LOCATOR_LENGTH: u64 = 20;
const HEADER: u32 = 0x0201_4b50;
const HEADER_LENGTH: usize = 46;

/// The maximum length of a path on Linux.
const MAX_NAME_BYTES: usize = 4096;

/// The contents of an archive.
#[derive(Debug)]
pub(in crate::v0) struct ArchiveDirectory {
    pub(in crate::v0) entries: Vec<ArchiveEntry>,
}

/// A file or folder in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::v0) struct ArchiveEntry {
    /// Relative path, with components separated by `/`.
    pub(in crate::v0) name: Vec<u8>,
    pub(in crate::v0) kind: ArchiveEntryKind,
    /// Uncompressed size in bytes.
    pub(in crate::v0) length: u64,
    pub(super) packed_length: u64,
    pub(super) checksum: u32,
    pub(super) is_deflated: bool,
    /// Offset of the local header.
    pub(super) offset: u64,
    /// Offset at which the data of all entries ends.
    pub(super) data_end: u64,
}

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::v0) enum ArchiveEntryKind {
    Folder,
    /// A file, with its permissions if the archive contains them.
    File {
        mode: Option<u32>,
    },
}

impl ArchiveDirectory {
    /// Reads the directory at the end of the file.
    pub(in crate::v0) fn read(file: &File) -> Result<Self, ArchiveError> {
        let location = DirectoryLocation::find(file)?;
        let mut bytes = vec![0; usize::try_from(location.length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, location.offset)?;
        let mut rest = bytes.as_slice();
        let mut entries = Vec::new();
        for _ in 0..location.entries {
            let (entry, after) = ArchiveEntry::read(rest, location.offset)?;
            entries.push(entry);
            rest = after;
        }
        Ok(Self { entries })
    }
}

/// Location of the directory in the file.
struct DirectoryLocation {
    offset: u64,
    length: u64,
    entries: u64,
}

impl DirectoryLocation {
    fn find(file: &File) -> Result<Self, ArchiveError> {
        let file_length = file.metadata()?.len();
        let tail_length = file_length.min((END_LENGTH + usize::from(u16::MAX)) as u64);
        let tail_offset = file_length - tail_length;
        let mut tail = vec![0; usize::try_from(tail_length).unwrap_or_default()];
        file.read_exact_at(&mut tail, tail_offset)?;
        // A comment may follow, which must end at the end of the file.
        let is_end = |at: &usize| {
            let record = tail.get(*at..).unwrap_or_default();
            u32_at(record, 0) == Some(END)
                && u16_at(record, 20)
                    .is_some_and(|comment| record.len() == END_LENGTH + usize::from(comment))
        };
        let last = tail
            .len()
            .checked_sub(END_LENGTH)
            .ok_or(ArchiveError::Malformed("too short"))?;
        let at = (0..=last)
            .rev()
            .find(is_end)
            .ok_or(ArchiveError::Malformed("no directory at its end"))?;
        let record = tail.get(at..).unwrap_or_default();
        let end_offset = tail_offset + at as u64;
        let short = Self {
            entries: u64::from(field(u16_at(record, 10))?),
            length: u64::from(field(u32_at(record, 12))?),
            offset: u64::from(field(u32_at(record, 16))?),
        };
        let is_long = short.entries == u64::from(u16::MAX)
            || short.length == u64::from(u32::MAX)
            || short.offset == u64::from(u32::MAX);
        let location = if is_long {
            Self::find_long(file, end_offset)?.unwrap_or(short)
        } else {
            short
        };
        location.checked(end_offset)
    }

    fn find_long(file: &File, end_offset: u64) -> Result<Option<Self>, ArchiveError> {
        let Some(locator_offset) = end_offset.checked_sub(LONG_END_LOCATOR_LENGTH) else {
            return Ok(None);
        };
        let mut locator = [0; LONG_END_LOCATOR_LENGTH as usize];
        file.read_exact_at(&mut locator, locator_offset)?;
        if u32_at(&locator, 0) != Some(LONG_END_LOCATOR) {
            return Ok(None);
        }
        let offset = field(u64_at(&locator, 8))?;
        if offset >= locator_offset {
            return Err(ArchiveError::Malformed(
                "the directory is not at its recorded offset",
            ));
        }
        let mut record = [0; 56];
        file.read_exact_at(&mut record, offset)?;
        if u32_at(&record, 0) != Some(LONG_END) {
            return Err(ArchiveError::Malformed(
                "the directory is not at its recorded offset",
            ));
        }
        Ok(Some(Self {
            entries: field(u64_at(&record, 32))?,
            length: field(u64_at(&record, 40))?,
            offset: field(u64_at(&record, 48))?,
        }))
    }

    fn checked(self, end_offset: u64) -> Result<Self, ArchiveError> {
        if self.entries > MAX_ENTRIES as u64 || self.length > MAX_DIRECTORY_BYTES {
            return Err(ArchiveError::TooManyEntries(MAX_DIRECTORY_BYTES));
        }
        match self.offset.checked_add(self.length) {
            Some(end) if end <= end_offset => Ok(self),
            _ => Err(ArchiveError::Malformed(
                "the directory is not at its recorded offset",
            )),
        }
    }
}

impl ArchiveEntry {
    /// Parses the first entry of `bytes`, and returns it with the rest.
    fn read(bytes: &[u8], data_end: u64) -> Result<(Self, &[u8]), ArchiveError> {
        const CUT: ArchiveError = ArchiveError::Malformed("the directory is cut");
        if field(u32_at(bytes, 0))? != HEADER {
            return Err(ArchiveError::Malformed(
                "the directory contains something other than entries",
            ));
        }
        let host = field(u16_at(bytes, 4))? >> 8;
        let flags = field(u16_at(bytes, 8))?;
        let method = field(u16_at(bytes, 10))?;
        let lengths = [28, 30, 32].map(|at| u16_at(bytes, at).map(usize::from));
        let [Some(name_length), Some(extra_length), Some(comment_length)] = lengths else {
            return Err(CUT);
        };
        let attributes = field(u32_at(bytes, 38))?;
        let rest = bytes.get(HEADER_LENGTH..).ok_or(CUT)?;
        let (name, rest) = rest.split_at_checked(name_length).ok_or(CUT)?;
        let (extra, rest) = rest.split_at_checked(extra_length).ok_or(CUT)?;
        let (_, rest) = rest.split_at_checked(comment_length).ok_or(CUT)?;
        let invalid = |problem| ArchiveError::Entry {
            name: clip(name),
            problem,
        };

        let kind = kind(name, host, attributes).map_err(invalid)?;
        check_name(name).map_err(invalid)?;
        if flags & 1 != 0 {
            return Err(invalid("is encrypted"));
        }
        let is_deflated = match method {
            0 => false,
            8 => true,
            _ => return Err(invalid("is compressed by another method than deflate")),
        };
        let mut long = long_fields(extra);
        let mut length = |at| -> Result<u64, ArchiveError> {
            match field(u32_at(bytes, at))? {
                u32::MAX => long.next().ok_or_else(|| invalid("has no length")),
                short => Ok(u64::from(short)),
            }
        };
        let (unpacked, packed_length, offset) = (length(24)?, length(20)?, length(42)?);
        let entry = Self {
            name: name.strip_suffix(b"/").unwrap_or(name).to_vec(),
            kind,
            length: unpacked,
            packed_length,
            checksum: field(u32_at(bytes, 16))?,
            is_deflated,
            offset,
            data_end,
        };
        Ok((entry, rest))
    }
}

/// Rejects names that lead out of the folder.
fn check_name(name: &[u8]) -> Result<(), &'static str> {
    if name.starts_with(b"/") {
        return Err("has an absolute path");
    }
    if name.len() > MAX_NAME_BYTES || name.contains(&0) {
        return Err("has a name that no file can have");
    }
    let name = name.strip_suffix(b"/").unwrap_or(name);
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b".." => return Err("has a path that leads out of its folder"),
            b"" | b"." => return Err("has a path with empty parts"),
            _ => {}
        }
    }
    Ok(())
}

fn kind(name: &[u8], host: u16, attributes: u32) -> Result<ArchiveEntryKind, &'static str> {
    const UNIX_HOSTS: [u16; 2] = [3, 19];
    let is_folder = name.ends_with(b"/");
    let mode = (UNIX_HOSTS.contains(&host))
        .then_some(attributes >> 16)
        .filter(|mode| *mode != 0);
    match (mode.unwrap_or_default() & 0o170_000, is_folder) {
        (0 | 0o040_000, true) => Ok(ArchiveEntryKind::Folder),
        (0 | 0o100_000, false) => match mode {
            Some(mode) if mode & 0o6000 != 0 => Err("would run as another user (setuid or setgid)"),
            mode => Ok(ArchiveEntryKind::File {
                mode: mode.map(|mode| mode & 0o777),
            }),
        },
        (0o120_000, _) => Err("is a link"),
        _ => Err("is neither a file nor a folder"),
    }
}

/// Parses the 64-bit lengths in the extra field.
fn long_fields(extra: &[u8]) -> impl Iterator<Item = u64> + '_ {
    const LONG: u16 = 1;
    let mut rest = extra;
    let mut blocks = std::iter::from_fn(move || {
        let (id, length) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
        let block = rest.get(4..4 + length)?;
        rest = rest.get(4 + length..)?;
        Some((id, block))
    });
    let block = blocks
        .find(|(id, _)| *id == LONG)
        .map_or(&[][..], |(_, block)| block);
    block
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

fn clip(name: &[u8]) -> String {
    String::from_utf8_lossy(name.get(..name.len().min(200)).unwrap_or_default()).into_owned()
}

fn field<T>(value: Option<T>) -> Result<T, ArchiveError> {
    value.ok_or(ArchiveError::Malformed("the directory is cut"))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}
