//! Calls of a runtime API: one connection each, one JSON value each way, bounded in size and time.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::SandboxError;
use futures_util::FutureExt as _;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::RUNTIME;
use super::driven::driven;
use super::endpoint::{Endpoint, OpenError};
use super::trust::Protocol;
use super::wire::{API_KEY_HEADER, ApiErrorCode, ErrorAnswer};
use crate::placement::{KEPT_LOG_LENGTH, chain};

/// The longest answer that is read: a list of many sandboxes, or a log in JSON's words.
const MAX_ANSWER_LENGTH: usize = 4 << 20;
/// Answers have a handful of short headers; proxies add some.
pub(super) const MAX_HEADERS: usize = 100;
/// The longest sentence of a service that goes into an error, in characters.
const MAX_QUOTED: usize = 1024;
/// For the body of a refusal.
const REFUSAL_WAIT: Duration = Duration::from_secs(5);

/// A runtime API and our key for it.
pub(super) struct RuntimeApi {
    pub(super) endpoint: Endpoint,
    key: HeaderValue,
}

/// How a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The connection broke, or nothing came in time. It may have been done all the same.
    #[error("{call}: {reason}")]
    Broken { call: String, reason: String },
    #[error("{call}: {refusal}")]
    Refused { call: String, refusal: Refusal },
    #[error("{call}: the answer cannot be read ({reason}): check that the address is that of a runtime API")]
    Malformed { call: String, reason: String },
}

/// The service's no.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: ApiErrorCode,
    pub(super) detail: String,
    pub(super) logs: String,
    pub(super) retry_after: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.detail)
    }
}

impl ApiError {
    /// Whether the same may be taken in a while.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Open(error) => error.may_pass(),
            Self::Broken { .. } => true,
            Self::Refused { refusal, .. } => match refusal.code {
                ApiErrorCode::Conflict => true,
                _ => {
                    let status = refusal.status;
                    status == StatusCode::TOO_MANY_REQUESTS
                        || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
                }
            },
            Self::Malformed { .. } => false,
        }
    }

    /// How long the service asks to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { refusal, .. } => refusal.retry_after,
            _ => None,
        }
    }

    /// There is no such sandbox.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { refusal, .. } if refusal.status == StatusCode::NOT_FOUND)
    }

    /// The error for whoever asked for `image` to be started, or for no image at all.
    pub(super) fn of(self, image: Option<&str>) -> SandboxError {
        match self {
            Self::Open(error) => error.into(),
            Self::Refused { call, refusal } => refusal.of(&call, image),
            other => unavailable(other.to_string()),
        }
    }
}

impl Refusal {
    fn of(self, call: &str, image: Option<&str>) -> SandboxError {
        let said = format!("{call}: {self}");
        match (self.code, self.status) {
            (ApiErrorCode::NoSuchImage, _) => SandboxError::NoSuchImage {
                image: image.unwrap_or("(the default)").into(),
                detail: self.detail,
            },
            (ApiErrorCode::StartFailed | ApiErrorCode::Invalid, _) => {
                SandboxError::Start { detail: self.detail, logs: self.logs }
            }
            (ApiErrorCode::Unsupported, _) => SandboxError::Unsupported {
                runtime: RUNTIME,
                what: "do that there: its machine's runtime cannot",
            },
            (ApiErrorCode::Lost | ApiErrorCode::NotFound, _) => SandboxError::Lost { detail: said },
            (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => unavailable(format!(
                "{said}: it does not take our key: check sandbox.api_key (SANDBOX_API_KEY)"
            )),
            (_, StatusCode::NOT_FOUND) => {
                unavailable(format!("{said}: check sandbox.remote_runtime_api_url"))
            }
            (_, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) => {
                SandboxError::Start { detail: said, logs: self.logs }
            }
            _ => unavailable(said),
        }
    }
}

pub(super) fn unavailable(detail: String) -> SandboxError {
    SandboxError::RuntimeUnavailable { runtime: RUNTIME, detail }
}

impl RuntimeApi {
    /// # Errors
    /// No header can carry the key.
    pub(super) fn new(endpoint: Endpoint, key: &SecretString) -> Result<Self, SandboxError> {
        let key = secret_header(key).ok_or_else(|| {
            unavailable(
                "the key sandbox.api_key holds what no header can carry: write it in one line of ASCII"
                    .into(),
            )
        })?;
        Ok(Self { endpoint, key })
    }

    /// Asks for something.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, ApiError> {
        self.call(Method::GET, path, Bytes::new(), wait).await
    }

    /// Asks for something to be done.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| ApiError::Malformed {
            call: self.named(&Method::POST, path),
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
        let call = self.named(&method, path);
        let body = match timeout(wait, self.exchange(method, path, body, &call)).await {
            Ok(answer) => answer?,
            Err(_) => {
                let reason = format!("no answer within {} s", wait.as_secs_f32());
                return Err(ApiError::Broken { call, reason });
            }
        };
        serde_json::from_slice(&body).map_err(|error| ApiError::Malformed { call, reason: error.to_string() })
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes, call: &str) -> Result<Bytes, ApiError> {
        let broken = |reason: String| ApiError::Broken { call: call.to_owned(), reason };
        let stream = self.endpoint.open(Protocol::Http1).await?;
        let (mut requests, driver) = hyper::client::conn::http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(chain(&error)))?;
        let request = self.request(method, path, body);
        let exchange = async {
            let answer = requests.send_request(request).await.map_err(|error| broken(chain(&error)))?;
            if !answer.status().is_success() {
                let refusal = refusal(answer).await;
                return Err(ApiError::Refused { call: call.to_owned(), refusal });
            }
            read(answer).await.map_err(broken)
        };
        // Whoever gives up waiting closes the connection, and the service may see that.
        driven(exchange, &mut std::pin::pin!(driver.fuse())).await
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
        let url = &self.endpoint.url;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        // Ids hold only letters, digits, `-`, `_` and `.`: the path always parses.
        *request.uri_mut() = url.path(path).parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(API_KEY_HEADER, self.key.clone());
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(host) = HeaderValue::from_str(url.authority()) {
            headers.insert(header::HOST, host);
        }
        request
    }

    fn named(&self, method: &Method, path: &str) -> String {
        format!("{method} {}{path}", self.endpoint.url)
    }
}

/// A key as a header that is not logged; nothing when no header can carry it.
pub(super) fn secret_header(key: &SecretString) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(key.expose_secret()).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Reads why a service says no. When that cannot be read, its status must do.
pub(super) async fn refusal(answer: Response<Incoming>) -> Refusal {
    let status = answer.status();
    let retry_after = answer.headers().get(header::RETRY_AFTER);
    let retry_after =
        retry_after.and_then(|seconds| seconds.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    let body = timeout(REFUSAL_WAIT, read(answer)).await.unwrap_or_else(|_| Err("without an end".into()));
    let said: ErrorAnswer = body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
    let detail = if said.detail.is_empty() { "without a reason that we can read" } else { &said.detail };
    let detail = quoted(detail);
    let mut logs = said.logs;
    let excess = logs.len().saturating_sub(KEPT_LOG_LENGTH);
    logs.drain(..logs.ceil_char_boundary(excess));
    Refusal { status, code: said.code, detail, logs, retry_after }
}

async fn read(answer: Response<Incoming>) -> Result<Bytes, String> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER_LENGTH).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| format!("reading the answer: {}", chain(error.as_ref())))
}

/// A service's sentence, fit for one line of a terminal.
fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
