//! Reads and writes the content of files of any length.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use engine::sandbox::{ByteSource, SandboxError, TransferKind};
use protocol::client_api::v2::files::ReadFile;
use tokio::io::{AsyncRead, ReadBuf};

use super::WorkspaceFiles;
use super::error::WorkspaceError;

/// Maximum length of a file that is written, in bytes. It is never in memory as a whole, so this
/// protects the disk of the sandbox.
const MAX_BYTES: u64 = 1 << 30;

/// Returns a part of a file.
pub(super) async fn read(
    workspace: &WorkspaceFiles,
    request: &ReadFile,
) -> Result<ByteSource, WorkspaceError> {
    let path = workspace.resolve(&request.path).await?;
    path.check_file()?;
    let (files, start) = (workspace.files()?, request.offset);
    let content = match request.length {
        None if start == 0 => files.download(&path.absolute, TransferKind::File).await,
        length => {
            let end = length.map_or(u64::MAX, |length| start.saturating_add(length));
            files.download_part(&path.absolute, start..end).await
        }
    };
    content.map_err(WorkspaceError::from_sandbox)
}

/// Writes a file.
pub(super) async fn write(
    workspace: &WorkspaceFiles,
    path: &str,
    content: ByteSource,
) -> Result<(), WorkspaceError> {
    let content = Box::new(BoundedSource {
        content,
        left: MAX_BYTES,
    });
    match workspace.upload(path, content).await {
        Ok(_) => Ok(()),
        Err(WorkspaceError::Sandbox(SandboxError::Host { source, .. }))
            if source.kind() == io::ErrorKind::FileTooLarge =>
        {
            Err(WorkspaceError::TooLarge {
                subject: format!("{path:?}"),
                max_bytes: MAX_BYTES,
            })
        }
        Err(WorkspaceError::Sandbox(error)) => Err(WorkspaceError::from_sandbox(error)),
        Err(error) => Err(error),
    }
}

/// Content that fails beyond a maximum length.
struct BoundedSource {
    content: ByteSource,
    /// Number of bytes that may follow.
    left: u64,
}

impl AsyncRead for BoundedSource {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.content).poll_read(context, buffer))?;
        let count = (buffer.filled().len() - before) as u64;
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Ok(()))
            }
            None => {
                // A reader that fails has filled nothing.
                buffer.set_filled(before);
                Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn content_fails_beyond_its_maximum_length() {
        for (length, is_accepted) in [(0, true), (9, true), (10, true), (11, false)] {
            let content = Box::new(tokio::io::repeat(0).take(length));
            let mut bounded = BoundedSource { content, left: 10 };
            let read = bounded.read_to_end(&mut Vec::new()).await;
            let kind = read.as_ref().err().map(io::Error::kind);
            assert_eq!(read.is_ok(), is_accepted, "{length}: {read:?}");
            assert!(is_accepted || kind == Some(io::ErrorKind::FileTooLarge));
        }
    }
}
