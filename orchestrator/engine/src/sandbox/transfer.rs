//! What a host can do with a placed sandbox beside performing actions: values and streams that cross the seam.

use protocol::sandbox_api::{OutputStream, TerminalQuery};
use tokio::io::AsyncRead;

use super::OutputChunk;

/// Bytes that come from somewhere, at the pace of whoever reads them. An error says that they are not whole.
pub type ByteSource = Box<dyn AsyncRead + Send + Unpin>;

/// Where a byte stream into a sandbox leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamTarget {
    /// A TCP port that something inside listens on.
    Port(u16),
    /// A unix socket inside, by its path.
    Socket(String),
    /// A fresh shell, or a command, on a terminal of its own. Its stream carries
    /// [`TerminalInput`](protocol::sandbox_api::TerminalInput)s in and
    /// [`TerminalOutput`](protocol::sandbox_api::TerminalOutput)s out; closing it ends what runs there.
    Terminal(TerminalQuery),
}

/// What bytes are that go into a sandbox or come out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// The content of one file.
    File,
    /// A folder as a tar archive; what comes out of a sandbox is hostile, an archive too.
    Tree,
}

/// Hears what a program writes, each stream in order.
pub type OnProgramOutput<'a> = dyn for<'chunk> Fn(OutputStream, OutputChunk<'chunk>) + Send + Sync + 'a;
