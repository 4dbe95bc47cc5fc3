//! The directory of a zip archive, read with rawzip.

use std::fs::File;

use rawzip::{
    CompressionMethod, CreatorSystem, FileReader, MAX_CENTRAL_DIRECTORY_RECORD_SIZE, ZipArchive,
    ZipArchiveEntryWayfinder, ZipFileHeaderRecord,
};

use super::{ArchiveError, MAX_ENTRIES};

/// Maximum size of the directory, whose names are in memory.
const MAX_DIRECTORY_BYTES: u64 = 16 << 20;

/// The maximum length of a path on Linux.
const MAX_NAME_BYTES: usize = 4096;

/// The contents of an archive.
#[derive(Debug)]
pub(in crate::v0) struct ArchiveDirectory {
    pub(super) archive: ZipArchive<FileReader>,
    pub(in crate::v0) entries: Vec<ArchiveEntry>,
}

/// A file or folder in the archive.
#[derive(Debug)]
pub(in crate::v0) struct ArchiveEntry {
    /// Relative path, with components separated by `/`.
    pub(in crate::v0) name: Vec<u8>,
    pub(in crate::v0) kind: ArchiveEntryKind,
    /// Uncompressed size in bytes.
    pub(in crate::v0) length: u64,
    pub(super) is_deflated: bool,
    pub(super) location: ZipArchiveEntryWayfinder,
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
        let mut buffer = vec![0; MAX_CENTRAL_DIRECTORY_RECORD_SIZE];
        let archive = ZipArchive::from_file(file.try_clone()?, &mut buffer)?;
        let stated = archive.entries_hint();
        let length = archive
            .eocd_offset()
            .saturating_sub(archive.directory_offset());
        if stated > MAX_ENTRIES as u64 || length > MAX_DIRECTORY_BYTES {
            return Err(ArchiveError::TooManyEntries(MAX_DIRECTORY_BYTES));
        }
        let mut entries = Vec::new();
        let mut records = archive.entries(&mut buffer);
        while let Some(record) = records.next_entry()? {
            entries.push(ArchiveEntry::read(&record)?);
        }
        if entries.len() as u64 != stated {
            return Err(ArchiveError::Malformed(
                "the directory has another number of entries than recorded",
            ));
        }
        Ok(Self { archive, entries })
    }
}

impl ArchiveEntry {
    fn read(record: &ZipFileHeaderRecord<'_>) -> Result<Self, ArchiveError> {
        let path = record.file_path();
        let name = path.as_ref();
        let invalid = |problem| ArchiveError::Entry {
            name: clip(name),
            problem,
        };
        let kind = kind(name, record).map_err(invalid)?;
        check_name(name).map_err(invalid)?;
        if record.flags().is_encrypted() {
            return Err(invalid("is encrypted"));
        }
        let is_deflated = match record.compression_method() {
            CompressionMethod::STORE => false,
            CompressionMethod::DEFLATE => true,
            _ => return Err(invalid("is compressed by another method than deflate")),
        };
        // rawzip leaves the mark of a 64-bit field as it is if there is no such field.
        let fields = [
            record.uncompressed_size_hint(),
            record.compressed_size_hint(),
            record.local_header_offset(),
        ];
        if fields.contains(&u64::from(u32::MAX)) {
            return Err(invalid("has no length"));
        }
        Ok(Self {
            name: name.strip_suffix(b"/").unwrap_or(name).to_vec(),
            kind,
            length: record.uncompressed_size_hint(),
            is_deflated,
            location: record.wayfinder(),
        })
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

fn kind(name: &[u8], record: &ZipFileHeaderRecord<'_>) -> Result<ArchiveEntryKind, &'static str> {
    const UNIX_SYSTEMS: [CreatorSystem; 2] = [CreatorSystem::UNIX, CreatorSystem::MACOS];
    let is_folder = name.ends_with(b"/");
    let mode = UNIX_SYSTEMS
        .contains(&record.version_made_by().creator_system())
        .then_some(record.external_attributes() >> 16)
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

fn clip(name: &[u8]) -> String {
    String::from_utf8_lossy(name.get(..name.len().min(200)).unwrap_or_default()).into_owned()
}
