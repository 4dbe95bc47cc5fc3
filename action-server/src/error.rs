//! How the server says no: every refusal and its status, chosen here and nowhere else.

use std::panic::AssertUnwindSafe;

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use protocol::IdError;
use protocol::sandbox_api::{ErrorBody, ErrorCode};
use serde::Serialize;

use crate::ledger::LedgerError;
use crate::process::ProcessError;

/// Why a request is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the header x-session-api-key is missing or holds a wrong key")]
    Forbidden,
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
            Self::Forbidden => (StatusCode::FORBIDDEN, ErrorCode::Forbidden),
            Self::NoSuchRoute => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::Invalid),
            Self::Id(_)
            | Self::Parameter { .. }
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
            Self::Process(error) => of_process(error),
            Self::Ledger(LedgerError::Busy(_)) | Self::TooManyRequests(_) => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Busy)
            }
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        }
    }
}

fn of_process(error: &ProcessError) -> (StatusCode, ErrorCode) {
    match error {
        ProcessError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Invalid),
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status();
        let detail = self.to_string();
        tracing::debug!(%status, detail, "refused");
        let errors =
            if status == StatusCode::UNPROCESSABLE_ENTITY { vec![detail.clone()] } else { Vec::new() };
        (status, Json(Body { error: ErrorBody { code, detail }, errors })).into_response()
    }
}

/// A panic is a fault of ours, but it is this request's: without this it would end every request of the connection.
pub(crate) async fn contain_panics(request: Request, next: Next) -> Response {
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answered.unwrap_or_else(|_| ApiError::Failed.into_response())
}
