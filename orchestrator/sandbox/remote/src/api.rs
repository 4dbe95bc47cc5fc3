//! Requests to a runtime API: one connection each, JSON in both directions, bounded in size and
//! time.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use engine::errors::format_chain;
use engine::sandbox::SandboxError;
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use protocol::runtime_api::{API_KEY_HEADER, ApiErrorBody, ApiErrorCode};
use sandbox_client::provisioning::{MAX_LOG_BYTES, quote, secret_header};
use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::drive::drive;
use super::endpoint::{Endpoint, OpenError};
use super::trust::Protocol;
use super::{RUNTIME, unavailable};

/// Maximum length of a response: a list of many sandboxes, or a JSON-encoded log.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Responses have a few short headers. Proxies add some.
pub(super) const MAX_HEADERS: usize = 100;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// A runtime API and the key for it.
pub(super) struct RuntimeApi {
    pub(super) endpoint: Endpoint,
    key: HeaderValue,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The connection broke, or no response came in time. The request may have been performed.
    #[error("{call}: {reason}")]
    Broken { call: String, reason: String },
    #[error("{call}: {error}")]
    Response {
        call: String,
        error: ApiErrorResponse,
    },
    #[error(
        "{call}: the response cannot be read ({reason}): check that the address is that of a runtime API"
    )]
    Malformed { call: String, reason: String },
}

/// An error response of the service.
#[derive(Debug)]
pub(super) struct ApiErrorResponse {
    pub(super) status: StatusCode,
    pub(super) code: ApiErrorCode,
    pub(super) detail: String,
    pub(super) logs: String,
    pub(super) retry_after: Option<Duration>,
}

impl fmt::Display for ApiErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.detail)
    }
}

impl ApiError {
    /// Whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Open(error) => error.is_transient(),
            Self::Broken { .. } => true,
            Self::Response { error, .. } => match error.code {
                ApiErrorCode::Conflict => true,
                _ => {
                    let status = error.status;
                    status == StatusCode::TOO_MANY_REQUESTS
                        || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
                }
            },
            Self::Malformed { .. } => false,
        }
    }

    /// Whether the sandbox is being started or removed.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Response { error, .. } if error.code == ApiErrorCode::Conflict)
    }

    /// The minimum delay that the service requests.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Response { error, .. } => error.retry_after,
            _ => None,
        }
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Response { error, .. } if error.status == StatusCode::NOT_FOUND)
    }

    /// Converts the error of a request that starts a sandbox from `image`. `None` if the request
    /// names no image.
    pub(super) fn into_sandbox_error(self, image: Option<&str>) -> SandboxError {
        match self {
            Self::Open(error) => error.into(),
            Self::Response { call, error } => error.into_sandbox_error(&call, image),
            other => unavailable(other.to_string()),
        }
    }
}

impl ApiErrorResponse {
    fn into_sandbox_error(self, call: &str, image: Option<&str>) -> SandboxError {
        let detail = format!("{call}: {self}");
        match (self.code, self.status) {
            (ApiErrorCode::NoSuchImage, _) => SandboxError::NoSuchImage {
                image: image.unwrap_or("(the default)").into(),
                detail: self.detail,
            },
            (ApiErrorCode::StartFailed, _) => SandboxError::Start {
                detail: self.detail,
                logs: self.logs,
            },
            (ApiErrorCode::Invalid, _) => SandboxError::Invalid {
                detail: self.detail,
            },
            (ApiErrorCode::Unsupported, _) => SandboxError::Unsupported {
                runtime: RUNTIME,
                what: "do that: the runtime of the sandbox host does not support it",
            },
            (ApiErrorCode::Lost | ApiErrorCode::NotFound, _) => SandboxError::Lost { detail },
            (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => unavailable(format!(
                "{detail}: it rejects the key: check sandbox.api_key (SANDBOX_API_KEY)"
            )),
            (_, StatusCode::NOT_FOUND) => {
                unavailable(format!("{detail}: check sandbox.remote_runtime_api_url"))
            }
            (_, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) => {
                SandboxError::Start {
                    detail,
                    logs: self.logs,
                }
            }
            _ => unavailable(detail),
        }
    }
}

impl RuntimeApi {
    /// # Errors
    /// A header cannot carry the key.
    pub(super) fn new(endpoint: Endpoint, key: &SecretString) -> Result<Self, SandboxError> {
        let key = secret_header(key).ok_or_else(|| {
            unavailable(
                "the key sandbox.api_key cannot be sent in a header: write it in one line of ASCII"
                    .into(),
            )
        })?;
        Ok(Self { endpoint, key })
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        wait: Duration,
    ) -> Result<T, ApiError> {
        self.call(Method::GET, path, Bytes::new(), wait).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| ApiError::Malformed {
            call: self.describe(&Method::POST, path),
            reason: format!("encoding the request: {error}"),
        })?;
        self.call(Method::POST, path, body.into(), wait).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<T, ApiError> {
        let call = self.describe(&method, path);
        let body = match timeout(wait, self.exchange(method, path, body, &call)).await {
            Ok(body) => body?,
            Err(_) => {
                let reason = format!("no response within {} s", wait.as_secs_f32());
                return Err(ApiError::Broken { call, reason });
            }
        };
        serde_json::from_slice(&body).map_err(|error| {
            let is_page = body.trim_ascii_start().starts_with(b"<");
            let reason = if is_page {
                "a web page, not JSON".to_owned()
            } else {
                error.to_string()
            };
            ApiError::Malformed { call, reason }
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        call: &str,
    ) -> Result<Bytes, ApiError> {
        let broken = |reason: String| ApiError::Broken {
            call: call.to_owned(),
            reason,
        };
        let stream = self.endpoint.open(Protocol::Http1).await?;
        let (mut sender, driver) = hyper::client::conn::http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(format_chain(&error)))?;
        let request = self.request(method, path, body);
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| broken(format_chain(&error)))?;
            if !response.status().is_success() {
                let error = read_error(response).await;
                return Err(ApiError::Response {
                    call: call.to_owned(),
                    error,
                });
            }
            read(response).await.map_err(broken)
        };
        // Dropping this closes the connection, which the service may notice.
        drive(exchange, &mut std::pin::pin!(driver.fuse())).await
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let url = &self.endpoint.url;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // Ids contain only letters, digits, `-`, `_` and `.`: the path always parses.
        *request.uri_mut() = url.path(path).parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(API_KEY_HEADER, self.key.clone());
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(host) = HeaderValue::from_str(url.authority()) {
            headers.insert(header::HOST, host);
        }
        request
    }

    fn describe(&self, method: &Method, path: &str) -> String {
        format!("{method} {}{path}", self.endpoint.url)
    }
}

/// Reads an error response. If its body cannot be read, only the status is known.
pub(super) async fn read_error(response: Response<Incoming>) -> ApiErrorResponse {
    let status = response.status();
    let retry_after = response.headers().get(header::RETRY_AFTER);
    let retry_after = retry_after
        .and_then(|seconds| seconds.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = timeout(ERROR_BODY_TIMEOUT, read(response))
        .await
        .ok()
        .and_then(Result::ok);
    let body = body.and_then(|body| serde_json::from_slice(&body).ok());
    let ApiErrorBody {
        code,
        detail,
        mut logs,
    } = body.unwrap_or_default();
    let detail = if detail.is_empty() {
        "without a readable reason".into()
    } else {
        quote(&detail)
    };
    let excess = logs.len().saturating_sub(MAX_LOG_BYTES);
    logs.drain(..logs.ceil_char_boundary(excess));
    ApiErrorResponse {
        status,
        code,
        detail,
        logs,
        retry_after,
    }
}

async fn read(response: Response<Incoming>) -> Result<Bytes, String> {
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
        .collect()
        .await;
    body.map(|body| body.to_bytes())
        .map_err(|error| format!("reading the response: {}", format_chain(error.as_ref())))
}
