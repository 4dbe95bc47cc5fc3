//! Errors of the files of a workspace.

use engine::sandbox::SandboxError;

use crate::error::InvalidRequest;
use crate::service::{ServiceError, ServiceErrorKind};

/// Why an operation on the files of a workspace failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A field of the request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The path is empty, too long, or has a NUL byte.
    #[error("the path {path:?} {problem}")]
    InvalidPath {
        /// The requested path.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The path, or a link in it, leads out of the workspace.
    #[error("{0:?} is outside of the workspace, or a link leads out of it")]
    Outside(String),
    /// There is no such file or folder.
    #[error("there is no {0:?} in the workspace")]
    NotFound(String),
    /// There is a file already.
    #[error("{0:?} exists in the workspace already")]
    Exists(String),
    /// It is a folder, a pipe, a socket or a device.
    #[error("{0:?} is not a regular file")]
    NotAFile(String),
    /// It is not a folder.
    #[error("{0:?} is not a folder")]
    NotAFolder(String),
    /// It is not text in UTF-8.
    #[error("cannot show {0:?}: it is a binary file")]
    Binary(String),
    /// It has more than the maximum number of bytes.
    #[error("{subject} has more than {max_bytes} bytes")]
    TooLarge {
        /// The file or the output.
        subject: String,
        /// The maximum.
        max_bytes: u64,
    },
    /// The folder contains no git repository that can be read, or the sandbox has no git.
    #[error("there is no git repository in the workspace, or the sandbox has no git")]
    NoRepository,
    /// git did not complete in time. Worth a retry.
    #[error("git did not end within {0} seconds")]
    GitTimeout(u64),
    /// The sandbox refuses the change, such as the removal of a folder that is not empty.
    #[error("the sandbox refuses: {0}")]
    Refused(String),
    /// The sandbox does not respond, or refuses. Worth a retry unless it refuses.
    #[error("the sandbox cannot access the file")]
    Sandbox(#[from] SandboxError),
}

impl WorkspaceError {
    /// Returns the error of an operation. Its message has what the sandbox says about the file.
    pub(super) fn from_sandbox(error: SandboxError) -> Self {
        match error {
            SandboxError::Refused { detail } => Self::Refused(detail),
            error => error.into(),
        }
    }

    /// Returns the kind of error for users of the service.
    fn kind(&self) -> ServiceErrorKind {
        match self {
            Self::Invalid(_)
            | Self::InvalidPath { .. }
            | Self::NotAFile(_)
            | Self::NotAFolder(_)
            | Self::Binary(_) => ServiceErrorKind::Invalid,
            Self::Outside(_) => ServiceErrorKind::Denied,
            Self::NotFound(_) | Self::NoRepository => ServiceErrorKind::NotFound,
            Self::TooLarge { .. } => ServiceErrorKind::TooLarge,
            Self::Exists(_)
            | Self::Refused(_)
            | Self::Sandbox(
                SandboxError::Refused { .. }
                | SandboxError::Invalid { .. }
                | SandboxError::Unsupported { .. },
            ) => ServiceErrorKind::Conflict,
            Self::GitTimeout(_) | Self::Sandbox(_) => ServiceErrorKind::Unavailable,
        }
    }

    /// Whether the request is at fault, and not the sandbox.
    pub fn is_about_request(&self) -> bool {
        match self {
            Self::Sandbox(
                SandboxError::Refused { .. }
                | SandboxError::Invalid { .. }
                | SandboxError::Unsupported { .. },
            ) => true,
            Self::Sandbox(_) | Self::GitTimeout(_) => false,
            _ => true,
        }
    }
}

impl From<WorkspaceError> for ServiceError {
    fn from(error: WorkspaceError) -> Self {
        Self {
            kind: error.kind(),
            message: error.to_string(),
            source: Some(Box::new(error)),
        }
    }
}
