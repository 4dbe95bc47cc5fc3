//! Streams and file transfers between the host and a sandbox.

use protocol::sandbox_api::{OutputStream, TerminalQuery};
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
    /// there.
    Tree,
}

/// Receives the output of a program; each stream arrives in order.
pub type OnProgramOutput<'a> =
    dyn for<'chunk> Fn(OutputStream, OutputChunk<'chunk>) + Send + Sync + 'a;
