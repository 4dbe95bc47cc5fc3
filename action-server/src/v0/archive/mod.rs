//! Zip archives: untrusted ones are read, and new ones are written as a stream.
//!
//! Not a crate, because those for zip allocate by the counts that the archive states, so that a few
//! hostile bytes can end the server. Supports what V0's clients and `zip` write: stored and
//! deflated entries, and zip64.

mod directory;
mod entry;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use directory::{ArchiveDirectory, ArchiveEntry, ArchiveEntryKind};
pub(super) use entry::EntryReader;
pub(super) use writer::ArchiveWriter;

/// Maximum number of entries. As many as a large source tree with its dependencies.
pub(super) const MAX_ENTRIES: usize = 100_000;

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
    Io(#[from] std::io::Error),
}
