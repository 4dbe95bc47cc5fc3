//! Errors of the HTTP API. The only place that maps an error to its HTTP status and wire code.

use std::io;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use nix::errno::Errno;
use protocol::sandbox_api::{ErrorBody, ErrorCode};
use protocol::{IdError, SessionName};
use serde::Serialize;

use crate::environment::EnvironmentError;
use crate::files::FileError;
use crate::ledger::LedgerError;
use crate::ports::TunnelError;
use crate::process::ProcessError;
use crate::sessions::TooManySessions;
use crate::shell::TerminalError;

/// Reason why a request is refused or has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the header x-session-api-key is missing or holds a wrong key")]
    Forbidden,
    #[error(
        "requests of web pages are refused if no key is set: the header `origin` is present, or `host` is not this machine"
    )]
    FromWebPage,
    #[error("there is no such route; see protocol::sandbox_api")]
    NoSuchRoute,
    #[error("the route does not support this method")]
    MethodNotAllowed,
    #[error("parameter `id`: {0}")]
    Id(#[from] IdError),
    #[error("parameter `{name}`: {problem}")]
    Parameter { name: &'static str, problem: String },
    #[error("the body has more than {0} bytes")]
    BodyTooLarge(usize),
    #[error("cannot read the body: {0}")]
    Body(String),
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("field `action`: unknown action `{0}`")]
    NoSuchAction(String),
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    TooLarge(String),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("there is no session `{0}`")]
    NoSuchSession(SessionName),
    #[error(transparent)]
    TooManySessions(#[from] TooManySessions),
    #[error(transparent)]
    TunnelError(#[from] TunnelError),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    #[error(
        "a tunnel or terminal is an extended CONNECT of HTTP/2, or a GET with the header `upgrade`"
    )]
    NoUpgrade,
    #[error(transparent)]
    File(#[from] FileError),
    #[error("query: {0}")]
    Query(String),
    /// Holds the length of the file.
    #[error("header `range`: outside of the file, which has {0} bytes")]
    Range(u64),
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Worth a retry when one of them has completed.
    #[error("{0} requests are in progress, which is the maximum")]
    TooManyRequests(usize),
    #[error("internal error; see the log of the server")]
    Failed,
}

impl ApiError {
    fn status(&self) -> (StatusCode, ErrorCode) {
        match self {
            Self::Forbidden | Self::FromWebPage => (StatusCode::FORBIDDEN, ErrorCode::Forbidden),
            Self::NoSuchRoute | Self::NotFound(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::Invalid),
            Self::Id(_)
            | Self::Parameter { .. }
            | Self::Query(_)
            | Self::Body(_)
            | Self::NotJson(_)
            | Self::NoSuchAction(_) => (StatusCode::BAD_REQUEST, ErrorCode::Invalid),
            Self::BodyTooLarge(_) | Self::TooLarge(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge)
            }
            Self::Malformed(_) => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
            Self::Ledger(LedgerError::Conflict(_) | LedgerError::StillRuns(_)) => {
                (StatusCode::CONFLICT, ErrorCode::Conflict)
            }
            Self::Ledger(LedgerError::Gone(_)) => (StatusCode::GONE, ErrorCode::Gone),
            Self::Ledger(LedgerError::Unknown(_)) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::TunnelError(TunnelError::NoListener(_)) => {
                (StatusCode::NOT_FOUND, ErrorCode::NotFound)
            }
            Self::TunnelError(TunnelError::Connect { .. }) => {
                (StatusCode::NOT_FOUND, ErrorCode::NotFound)
            }
            Self::TunnelError(TunnelError::TooMany) => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy)
            }
            Self::Environment(EnvironmentError::TooMuch) => {
                (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge)
            }
            Self::Environment(_) => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
            Self::Terminal(TerminalError::TooMany | TerminalError::Spawn { .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy)
            }
            Self::Terminal(TerminalError::Invalid { .. }) => {
                (StatusCode::BAD_REQUEST, ErrorCode::Invalid)
            }
            Self::NoUpgrade => (StatusCode::UPGRADE_REQUIRED, ErrorCode::Invalid),
            Self::NoSuchSession(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Process(error) => process_status(error),
            Self::Ledger(LedgerError::Busy(_))
            | Self::TooManyRequests(_)
            | Self::TooManySessions(_) => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy),
            Self::File(error) => file_status(error),
            Self::Range(_) => (StatusCode::RANGE_NOT_SATISFIABLE, ErrorCode::Range),
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        }
    }
}

fn file_status(error: &FileError) -> (StatusCode, ErrorCode) {
    use io::ErrorKind as Kind;
    match error {
        FileError::OutsideRoot(_) => (StatusCode::FORBIDDEN, ErrorCode::OutsideRoot),
        FileError::NotFound(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
        FileError::Parameter { .. } => (StatusCode::BAD_REQUEST, ErrorCode::Invalid),
        FileError::Archive(_)
        | FileError::Binary
        | FileError::Utf16(_)
        | FileError::MixedEncodings(_) => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
        FileError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
        FileError::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy),
        FileError::Directory(_)
        | FileError::Special(_)
        | FileError::Exists(_)
        | FileError::Unfit { .. } => (StatusCode::CONFLICT, ErrorCode::Conflict),
        FileError::Io { source, .. } => match source.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
                (StatusCode::FORBIDDEN, ErrorCode::Denied)
            }
            Kind::StorageFull | Kind::QuotaExceeded => {
                (StatusCode::INSUFFICIENT_STORAGE, ErrorCode::NoSpace)
            }
            Kind::OutOfMemory => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
            // A name that is too long, a loop of links, a program that runs: the cause is the path,
            // not the server.
            _ if source.raw_os_error() != Some(Errno::EIO as i32) => {
                (StatusCode::CONFLICT, ErrorCode::Conflict)
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        },
    }
}

fn process_status(error: &ProcessError) -> (StatusCode, ErrorCode) {
    match error {
        ProcessError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
        ProcessError::NoProgram { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::NoProgram),
        ProcessError::NotExecutable { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::NotExecutable)
        }
        ProcessError::Unknown(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
        ProcessError::Gone(_) => (StatusCode::GONE, ErrorCode::Gone),
        ProcessError::Busy(_) | ProcessError::Short(_) => {
            (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy)
        }
        ProcessError::Conflict(_)
        | ProcessError::StillRuns(_)
        | ProcessError::NoStdin(_)
        | ProcessError::StdinClosed(_)
        | ProcessError::Ended(_) => (StatusCode::CONFLICT, ErrorCode::Conflict),
    }
}

/// An [`ErrorBody`] with the additional list that V0's clients read.
#[derive(Serialize)]
struct ErrorBodyWithList {
    #[serde(flatten)]
    error: ErrorBody,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

/// Extension of an error response, for APIs with another error body.
#[derive(Debug, Clone)]
pub(crate) struct ErrorDetail {
    pub(crate) detail: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        let detail = self.to_string();
        // Without the detail, which may quote a path or a part of the request.
        tracing::debug!(%status, ?code, "request refused");
        let errors = if status == StatusCode::UNPROCESSABLE_ENTITY {
            vec![detail.clone()]
        } else {
            Vec::new()
        };
        let extension = Extension(ErrorDetail {
            detail: detail.clone(),
        });
        let body = Json(ErrorBodyWithList {
            error: ErrorBody { code, detail },
            errors,
        });
        match self {
            Self::Range(length) => (
                status,
                extension,
                [(header::CONTENT_RANGE, format!("bytes */{length}"))],
                body,
            )
                .into_response(),
            _ => (status, extension, body).into_response(),
        }
    }
}
