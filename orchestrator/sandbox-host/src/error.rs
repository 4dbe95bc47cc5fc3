//! The errors of a sandbox host, and the one place where its status codes are chosen.

use axum::Json;
use axum::response::{IntoResponse, Response};
use engine::sandbox::SandboxError;
use http::{HeaderValue, StatusCode, header};
use protocol::runtime_api::{ApiErrorBody, ApiErrorCode};

use engine::errors::format_chain;

const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");

#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    #[error("the header X-API-Key does not contain a key of this sandbox host")]
    Forbidden,
    #[error("the header X-Session-API-Key does not contain the key of this sandbox")]
    ForbiddenSandbox,
    #[error("{0}")]
    Invalid(String),
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not arrive within {0} s")]
    SlowBody(u64),
    #[error("the route does not exist")]
    NoSuchRoute,
    #[error("this key has no such sandbox")]
    NoSuchSandbox,
    #[error("the sandbox is being started or removed: retry later")]
    InTransition,
    #[error("{0}")]
    Lost(String),
    #[error("this key has {0} sandboxes, which is its quota: stop one, or retry later")]
    QuotaOfKey(usize),
    #[error("there are {0} sandboxes, which is the quota of this host: retry later")]
    QuotaOfAll(usize),
    #[error("{0} requests and streams to this sandbox are open, which is the maximum")]
    Busy(usize),
    #[error("{what} did not respond within {seconds} s")]
    Timeout { what: &'static str, seconds: u64 },
    #[error("{0}")]
    BadGateway(String),
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
            Self::InTransition => (StatusCode::CONFLICT, Code::Conflict),
            Self::Lost(_) => (StatusCode::GONE, Code::Lost),
            Self::QuotaOfKey(_) => (StatusCode::TOO_MANY_REQUESTS, Code::QuotaOfKey),
            Self::QuotaOfAll(_) => (StatusCode::TOO_MANY_REQUESTS, Code::QuotaOfAll),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, Code::Busy),
            Self::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, Code::Unreachable),
            Self::BadGateway(_) => (StatusCode::BAD_GATEWAY, Code::Unavailable),
            Self::Sandbox(error) => match error {
                SandboxError::RuntimeUnavailable { .. } => {
                    (StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable)
                }
                SandboxError::NoSuchImage { .. } => {
                    (StatusCode::UNPROCESSABLE_ENTITY, Code::NoSuchImage)
                }
                SandboxError::Start { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Code::StartFailed),
                SandboxError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, Code::Invalid),
                SandboxError::Lost { .. } => (StatusCode::GONE, Code::Lost),
                SandboxError::Unreachable { .. } => {
                    (StatusCode::SERVICE_UNAVAILABLE, Code::Unreachable)
                }
                // V0's client resumes the sandbox on this status, and retries.
                SandboxError::Paused { .. } => (StatusCode::SERVICE_UNAVAILABLE, Code::Paused),
                SandboxError::Unsupported { .. } => {
                    (StatusCode::NOT_IMPLEMENTED, Code::Unsupported)
                }
                // A failure on this side. A retry may succeed.
                _ => (StatusCode::BAD_GATEWAY, Code::Unavailable),
            },
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Sandbox(
                SandboxError::Start { detail, .. } | SandboxError::NoSuchImage { detail, .. },
            ) => detail.clone(),
            other => format_chain(other),
        }
    }
}

impl IntoResponse for HostError {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        if status.is_server_error() {
            tracing::warn!(error = format_chain(&self), "a request failed");
        }
        let detail = self.detail();
        let logs = match self {
            Self::Sandbox(SandboxError::Start { logs, .. }) => logs,
            _ => String::new(),
        };
        let mut response = (status, Json(ApiErrorBody { code, detail, logs })).into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        response
    }
}
