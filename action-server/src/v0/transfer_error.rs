//! Errors of uploads and downloads. Not worth a retry of the same request.

use std::io;
use std::path::{Path, PathBuf};

use super::archive::ArchiveError;
use crate::api::error::ApiError;

/// Reason why an upload or download failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// Invalid input: a field, a name, an entry of an archive.
    #[error("{0}")]
    Refused(String),
    /// A limit is exceeded.
    #[error("{0}")]
    TooMuch(String),
    #[error("path not found: {}", .0.display())]
    NotFound(PathBuf),
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl TransferError {
    pub(super) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}

impl From<TransferError> for ApiError {
    fn from(error: TransferError) -> Self {
        let detail = error.to_string();
        match error {
            TransferError::NotFound(_) => Self::NotFound(detail),
            TransferError::TooMuch(_) => Self::TooLarge(detail),
            TransferError::Refused(_) | TransferError::Io { .. } => Self::Malformed(detail),
        }
    }
}

impl From<ArchiveError> for TransferError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::TooManyEntries(_) => Self::TooMuch(error.to_string()),
            ArchiveError::Malformed(_) | ArchiveError::Entry { .. } | ArchiveError::Io(_) => {
                Self::Refused(error.to_string())
            }
        }
    }
}
