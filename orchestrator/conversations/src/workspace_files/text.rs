//! Reads text files.

use engine::sandbox::{SandboxError, SandboxFiles, TransferKind};
use tokio::io::AsyncReadExt as _;

use super::error::WorkspaceError;
use super::path::WorkspacePath;

/// Maximum length of a file that is shown, in bytes. An editor in a browser shows no larger one.
pub(super) const MAX_TEXT_BYTES: u64 = 8 << 20;

/// Returns the content of a file.
pub(super) async fn read(
    files: &dyn SandboxFiles,
    path: &WorkspacePath,
) -> Result<String, WorkspaceError> {
    path.check_file()?;
    let mut content = Vec::new();
    let source = files.download(&path.absolute, TransferKind::File).await?;
    let read = source
        .take(MAX_TEXT_BYTES + 1)
        .read_to_end(&mut content)
        .await;
    read.map_err(|error| SandboxError::host("read", &path.absolute, error))?;
    if content.len() as u64 > MAX_TEXT_BYTES {
        return Err(WorkspaceError::TooLarge {
            subject: format!("{:?}", path.relative),
            max_bytes: MAX_TEXT_BYTES,
        });
    }
    decode(content, &path.relative)
}

/// Decodes text. A NUL byte is valid UTF-8, but no text has one.
pub(super) fn decode(content: Vec<u8>, path: &str) -> Result<String, WorkspaceError> {
    match String::from_utf8(content) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(WorkspaceError::Binary(path.to_owned())),
    }
}
