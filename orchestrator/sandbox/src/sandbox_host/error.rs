//! How a sandbox-host says no: the one place where its status codes are chosen.

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::sandbox::SandboxError;
use http::{HeaderValue, StatusCode, header};

use crate::placement::chain;
use crate::remote::wire::{ApiErrorBody, ApiErrorCode};

/// What a client is asked to wait before it tries again.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");

/// Why something is not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    #[error("the header X-API-Key holds no key of this sandbox-host")]
    Forbidden,
    #[error("the header X-Session-API-Key does not hold the key of this sandbox")]
    ForbiddenSandbox,
    #[error("{0}")]
    Invalid(String),
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("the body has no end within {0} s")]
    SlowBody(u64),
    #[error("there is no such route")]
    NoSuchRoute,
    #[error("there is no such sandbox of this key")]
    NoSuchSandbox,
    #[error("the sandbox is being started or removed: ask again")]
    InMotion,
    #[error("{0}")]
    Lost(String),
    #[error("this key has {0} sandboxes, as many as it may: stop one, or ask again later")]
    QuotaOfKey(usize),
    #[error("there are {0} sandboxes, as many as this host lends: ask again later")]
    QuotaOfAll(usize),
    #[error("{0} requests and streams to this sandbox are open, as many as there may be")]
    Busy(usize),
    #[error("{what} did not answer within {seconds} s")]
    OutOfTime { what: &'static str, seconds: u64 },
    #[error("{0}")]
    Broken(String),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl HostError {
    fn status_and_code(&self) -> (StatusCode, ApiErrorCode) {
        use ApiErrorCode as Code;
        match self {
            Self::Forbidden | Self::ForbiddenSandbox => (StatusCode::FORBIDDEN, Code::Forbidden),
            Self::Invalid(_) => (StatusCode::BAD_REQUEST, Code::Invalid),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, Code::Invalid),
            Self::SlowBody(_) => (StatusCode::REQUEST_TIMEOUT, Code::Invalid),
            Self::NoSuchRoute => (StatusCode::NOT_FOUND, Code::Unknown),
            Self::NoSuchSandbox => (StatusCode::NOT_FOUND, Code::NotFound),
            Self::InMotion => (StatusCode::CONFLICT, Code::Conflict),
            Self::Lost(_) => (StatusCode::GONE, Code::Lost),
            Self::QuotaOfKey(_) => (StatusCode::TOO_MANY_REQUESTS, Code::QuotaOfKey),
            Self::QuotaOfAll(_) => (StatusCode::TOO_MANY_REQUESTS, Code::QuotaOfAll),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, Code::Busy),
            Self::OutOfTime { .. } => (StatusCode::GATEWAY_TIMEOUT, Code::Unavailable),
            Self::Broken(_) => (StatusCode::BAD_GATEWAY, Code::Unavailable),
            Self::Sandbox(error) => match error {
                SandboxError::RuntimeUnavailable { .. } => {
                    (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable)
                }
                SandboxError::NoSuchImage { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Code::NoSuchImage),
                SandboxError::Start { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Code::StartFailed),
                SandboxError::Lost { .. } => (StatusCode::GONE, Code::Lost),
                // At this V0's client resumes the sandbox and asks again, when it is to keep it.
                SandboxError::Paused { .. } => (StatusCode::SERVICE_UNAVAILABLE, Code::Paused),
                SandboxError::Unsupported { .. } => (StatusCode::NOT_IMPLEMENTED, Code::Unsupported),
                // The next seam's errors too: our side has failed, and may not the next time.
                _ => (StatusCode::BAD_GATEWAY, Code::Unavailable),
            },
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Sandbox(SandboxError::Start { detail, .. } | SandboxError::NoSuchImage { detail, .. }) => {
                detail.clone()
            }
            other => chain(other),
        }
    }
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        if status.is_server_error() {
            tracing::warn!(error = chain(&self), "a request failed");
        }
        let detail = self.detail();
        let logs = match self {
            Self::Sandbox(SandboxError::Start { logs, .. }) => logs,
            _ => String::new(),
        };
        let mut response = (status, Json(ApiErrorBody { code, detail, logs })).into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        response
    }
}
