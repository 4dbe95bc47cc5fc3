//! How the server says no: every refusal and its status, chosen here and nowhere else.

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
use crate::ports::Unreachable;
use crate::process::ProcessError;
use crate::sessions::TooManySessions;
use crate::shell::TerminalError;
use crate::v0::TransferError;

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the header x-session-api-key is missing or holds a wrong key")]
    Forbidden,
    #[error(
        "without a key no web page is served: the header `origin` is there, or `host` is not this machine"
    )]
    FromWebPage,
    #[error("there is no such route; see protocol::sandbox_api")]
    NoSuchRoute,
    #[error("the route does not take this method")]
    MethodNotAllowed,
    #[error("parameter `id`: {0}")]
    Id(#[from] IdError),
    #[error("parameter `{name}`: {problem}")]
    Parameter { name: &'static str, problem: String },
    #[error("the body has more than {0} bytes")]
    BodyTooLarge(usize),
    #[error("reading the body: {0}")]
    Body(String),
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("field `action`: there is no action `{0}`")]
    NoSuchAction(String),
    #[error("{0}")]
    Malformed(String),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("there is no session `{0}`")]
    NoSuchSession(SessionName),
    #[error(transparent)]
    TooManySessions(#[from] TooManySessions),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Terminal(#[from] TerminalError),
    #[error("a tunnel or terminal is an extended CONNECT of HTTP/2, or a GET with the header `upgrade`")]
    NoUpgrade,
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("query: {0}")]
    Query(String),
    /// The file's length.
    #[error("header `range`: the file has {0} bytes, and none of them is in it")]
    Range(u64),
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Worth a retry when one of them has ended.
    #[error("{0} requests are being answered, no more are taken")]
    TooManyRequests(usize),
    #[error("the server failed; its log says more")]
    Failed,
}

impl ApiError {
    fn status(&self) -> (StatusCode, ErrorCode) {
        match self {
            Self::Forbidden | Self::FromWebPage => (StatusCode::FORBIDDEN, ErrorCode::Forbidden),
            Self::NoSuchRoute => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::Invalid),
            Self::Id(_)
            | Self::Parameter { .. }
            | Self::Query(_)
            | Self::Body(_)
            | Self::NotJson(_)
            | Self::NoSuchAction(_) => (StatusCode::BAD_REQUEST, ErrorCode::Invalid),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
            Self::Malformed(_) => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
            Self::Ledger(LedgerError::Conflict(_) | LedgerError::StillRuns(_)) => {
                (StatusCode::CONFLICT, ErrorCode::Conflict)
            }
            Self::Ledger(LedgerError::Gone(_)) => (StatusCode::GONE, ErrorCode::Gone),
            Self::Ledger(LedgerError::Unknown(_)) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Unreachable(Unreachable::NoListener(_)) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Unreachable(Unreachable::Connect { .. }) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Unreachable(Unreachable::TooMany) => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy),
            Self::Environment(EnvironmentError::TooMuch) => {
                (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge)
            }
            Self::Environment(_) => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
            Self::Terminal(TerminalError::TooMany | TerminalError::Spawn { .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy)
            }
            Self::Terminal(TerminalError::Invalid { .. }) => (StatusCode::BAD_REQUEST, ErrorCode::Invalid),
            Self::NoUpgrade => (StatusCode::UPGRADE_REQUIRED, ErrorCode::Invalid),
            Self::NoSuchSession(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Process(error) => of_process(error),
            Self::Ledger(LedgerError::Busy(_)) | Self::TooManyRequests(_) | Self::TooManySessions(_) => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy)
            }
            Self::Transfer(TransferError::NotFound(_)) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Transfer(TransferError::TooMuch(_)) => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
            Self::Transfer(TransferError::Refused(_) | TransferError::Io { .. }) => {
                (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid)
            }
            Self::File(error) => of_file(error),
            Self::Range(_) => (StatusCode::RANGE_NOT_SATISFIABLE, ErrorCode::Range),
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        }
    }
}

fn of_file(error: &FileError) -> (StatusCode, ErrorCode) {
    use io::ErrorKind as Kind;
    match error {
        FileError::OutsideRoot(_) => (StatusCode::FORBIDDEN, ErrorCode::OutsideRoot),
        FileError::NotFound(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
        FileError::Parameter { .. } => (StatusCode::BAD_REQUEST, ErrorCode::Invalid),
        FileError::Archive(_) | FileError::Binary => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
        FileError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
        FileError::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy),
        FileError::Directory(_) | FileError::Special(_) | FileError::Exists(_) | FileError::Unfit { .. } => {
            (StatusCode::CONFLICT, ErrorCode::Conflict)
        }
        FileError::Io { source, .. } => match source.kind() {
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => (StatusCode::FORBIDDEN, ErrorCode::Denied),
            Kind::StorageFull | Kind::QuotaExceeded => (StatusCode::INSUFFICIENT_STORAGE, ErrorCode::NoSpace),
            Kind::OutOfMemory => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
            // Names that are too long, links in circles, files that run: what the system says is about the path.
            _ if source.raw_os_error() != Some(Errno::EIO as i32) => {
                (StatusCode::CONFLICT, ErrorCode::Conflict)
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        },
    }
}

fn of_process(error: &ProcessError) -> (StatusCode, ErrorCode) {
    match error {
        ProcessError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
        ProcessError::NoProgram { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::NoProgram),
        ProcessError::NotExecutable { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::NotExecutable),
        ProcessError::Unknown(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
        ProcessError::Gone(_) => (StatusCode::GONE, ErrorCode::Gone),
        ProcessError::Busy(_) | ProcessError::Short(_) => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy),
        ProcessError::Conflict(_)
        | ProcessError::StillRuns(_)
        | ProcessError::NoStdin(_)
        | ProcessError::StdinClosed(_)
        | ProcessError::Ended(_) => (StatusCode::CONFLICT, ErrorCode::Conflict),
    }
}

/// An [`ErrorBody`], and for V0's clients the list that they look for beside it.
#[derive(Serialize)]
struct Body {
    #[serde(flatten)]
    error: ErrorBody,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

/// Beside the response, for an API that words its refusals otherwise.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) detail: String,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        let detail = self.to_string();
        tracing::debug!(%status, detail, "refused");
        let errors =
            if status == StatusCode::UNPROCESSABLE_ENTITY { vec![detail.clone()] } else { Vec::new() };
        let refusal = Extension(Refusal { detail: detail.clone() });
        let body = Json(Body { error: ErrorBody { code, detail }, errors });
        match self {
            Self::Range(length) => {
                (status, refusal, [(header::CONTENT_RANGE, format!("bytes */{length}"))], body)
                    .into_response()
            }
            _ => (status, refusal, body).into_response(),
        }
    }
}
