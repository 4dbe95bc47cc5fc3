//! Zip archives: untrusted ones are read, and new ones are written as a stream.
//!
//! rawzip parses and writes the format. It stores no entries, so the limits are checked before an
//! archive costs anything. zip 9.8 was tried: its reader stores all entries of an archive, of any
//! number; its writer refuses a second file of the same name, which two names that are not UTF-8
//! can become; and the action server would have more crates than `cargo ci budget` allows.
//!
//! Supports what V0's clients and `zip` write: stored and deflated entries, and zip64.

mod directory;
mod entry;
mod writer;

#[cfg(test)]
mod tests;

use std::io;

use rawzip::ErrorKind;

pub(super) use directory::{ArchiveDirectory, ArchiveEntry, ArchiveEntryKind};
pub(super) use entry::EntryReader;
pub(super) use writer::ArchiveWriter;

/// Maximum number of entries. As many as a large source tree with its dependencies.
pub(super) const MAX_ENTRIES: usize = 100_000;

const MISPLACED: &str = "the directory or an entry is not at its recorded offset";

/// Reason why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    #[error("the archive cannot be read as zip: {0}")]
    Malformed(&'static str),
    #[error(
        "the archive has more than {MAX_ENTRIES} entries, or a directory of more than {0} bytes"
    )]
    TooManyEntries(u64),
    #[error("the archive's entry `{name}` {problem}")]
    Entry { name: String, problem: &'static str },
    #[error("cannot read the archive: {0}")]
    Io(#[from] io::Error),
}

impl From<rawzip::Error> for ArchiveError {
    fn from(error: rawzip::Error) -> Self {
        match error.into_kind() {
            ErrorKind::IO(error) if error.kind() != io::ErrorKind::UnexpectedEof => Self::Io(error),
            kind => Self::Malformed(problem(&kind)),
        }
    }
}

/// Describes what is wrong with an archive.
fn problem(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::MissingEndOfCentralDirectory => {
            "there is no directory at its end: it is too short, or not a zip archive"
        }
        ErrorKind::InvalidSize { expected, actual } if actual > expected => {
            "an entry is longer than its recorded size"
        }
        ErrorKind::InvalidSize { .. } => "an entry is shorter than its recorded size",
        ErrorKind::InvalidChecksum { .. } => "an entry is damaged: its checksum is wrong",
        _ => MISPLACED,
    }
}
