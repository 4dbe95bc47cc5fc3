//! Streams and file transfers between the host and a sandbox.

use std::io::{self, Read};

use protocol::sandbox_api::{OutputStream, SkippedEntries, TerminalQuery};
use tokio::io::AsyncRead;

use super::OutputChunk;

/// A stream of bytes that the consumer reads at its own pace. An error means that the content is
/// incomplete.
pub type ByteSource = Box<dyn AsyncRead + Send + Unpin>;

/// The target of a byte stream into a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamTarget {
    /// A TCP port on which a process in the sandbox listens.
    Port(u16),
    /// The path of a unix socket in the sandbox.
    Socket(String),
    /// A new shell or a command, in a terminal of its own. The stream carries
    /// [`TerminalInput`](protocol::sandbox_api::TerminalInput)s in and
    /// [`TerminalOutput`](protocol::sandbox_api::TerminalOutput)s out. Closing it kills the
    /// processes of the terminal.
    Terminal(TerminalQuery),
}

/// The kind of content that an upload or a download transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// The content of one file.
    File,
    /// A folder as a tar archive. An archive from a sandbox is untrusted, like everything from
    /// there. After an archive that leaves out entries, its source fails with
    /// [`IncompleteArchive`].
    Tree,
}

/// Maximum number of bytes after the last entry of an archive.
const MAX_TRAILING_BYTES: u64 = 1 << 20;

/// The archive is valid, but leaves out entries: special files, and what cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("entries of the folder that are left out: {}, such as {}", .0.count, printable(&.0.named))]
pub struct IncompleteArchive(pub SkippedEntries);

/// Joins names from a sandbox, which may contain escape sequences.
fn printable(named: &[String]) -> String {
    named.join(", ").replace(char::is_control, "\u{fffd}")
}

impl IncompleteArchive {
    /// Returns the entries that an archive leaves out, from the error of its source.
    ///
    /// # Errors
    /// The source has failed for another reason.
    pub fn skipped(error: io::Error) -> io::Result<SkippedEntries> {
        error.downcast::<Self>().map(|incomplete| incomplete.0)
    }

    /// Reads what follows the last entry of an archive. Returns the entries that it leaves out.
    ///
    /// # Errors
    /// The source fails.
    pub fn read_skipped(rest: impl Read) -> io::Result<SkippedEntries> {
        match io::copy(&mut rest.take(MAX_TRAILING_BYTES), &mut io::sink()) {
            Ok(_) => Ok(SkippedEntries::default()),
            Err(error) => Self::skipped(error),
        }
    }
}

/// Receives the output of a program; each stream arrives in order.
pub type OnProgramOutput<'a> =
    dyn for<'chunk> Fn(OutputStream, OutputChunk<'chunk>) + Send + Sync + 'a;
