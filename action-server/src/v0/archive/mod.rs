//! Zip archives: read with distrust, written as a stream.
//!
//! Written here because the crates for it believe an archive's own counts when they make room, so that a few hostile
//! bytes can end the server. Only what V0's clients and `zip` write is understood: stored or deflated entries, zip64.

mod directory;
mod entry;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use directory::{Directory, Entry, Kind};
pub(super) use entry::EntryReader;
pub(super) use writer::Writer;

/// Entries of one archive; a large tree of sources with its dependencies has as many.
pub(super) const MAX_ENTRIES: usize = 100_000;

/// Why an archive is not read. The texts are for whoever sent it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    #[error("the archive cannot be read as zip: {0}")]
    Malformed(&'static str),
    #[error("the archive has more than {MAX_ENTRIES} entries, or a directory of more than {0} bytes")]
    TooManyEntries(u64),
    #[error("the archive's entry `{name}` {problem}")]
    Entry { name: String, problem: &'static str },
    #[error("reading the archive: {0}")]
    Io(#[from] std::io::Error),
}
