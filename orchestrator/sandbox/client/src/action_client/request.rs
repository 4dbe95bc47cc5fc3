//! Requests to an action server and their responses. All reads are bounded in size and time.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use engine::errors::format_chain;
use engine::sandbox::SandboxError;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use protocol::ActionId;
use protocol::sandbox_api::{ErrorBody, ErrorCode, KEY_HEADER};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::connection::{Body, RequestSender};
use super::link::Link;
use crate::provisioning::quote;

/// Timeout for the head of a response. A server responds immediately, but the file of a write
/// action must be uploaded first.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a short body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a short body: a list of a thousand ports with their processes.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Maximum length of a list of 10,000 files with long names.
const MAX_LIST_BYTES: usize = 32 << 20;
/// Maximum number of times that an idempotent request is sent.
const MAX_ATTEMPTS: u32 = 3;

/// HTTP/2 requires an authority. It is not resolved.
const AUTHORITY: &str = "http://sandbox";

/// No complete response was received. The request may be sent again over another connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct TransportError(pub(super) String);

impl From<TransportError> for SandboxError {
    fn from(error: TransportError) -> Self {
        Self::Malformed {
            detail: error.to_string(),
        }
    }
}

impl From<hyper::Error> for TransportError {
    fn from(error: hyper::Error) -> Self {
        Self(format_chain(&error))
    }
}

/// The start of the server's errors about a field of a request.
const FIELD: &str = "field `";

/// Removes the server's prefix with the field of the request, such as "field `argv`: ". Means
/// nothing to the caller, who passed an argument.
fn without_field(detail: &str) -> String {
    let problem = detail
        .strip_prefix(FIELD)
        .and_then(|rest| rest.split_once("`: "));
    problem.map_or(detail, |(_, problem)| problem).to_owned()
}

/// An error response of the server.
#[derive(Debug, thiserror::Error)]
#[error("{status}: {detail}")]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    pub(super) code: ErrorCode,
    detail: String,
}

impl ErrorResponse {
    /// Whether the server rejects the key.
    pub(super) fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::FORBIDDEN || self.status == StatusCode::UNAUTHORIZED
    }
}

impl From<ErrorResponse> for SandboxError {
    fn from(error: ErrorResponse) -> Self {
        match error.code {
            ErrorCode::NoProgram | ErrorCode::NotExecutable => Self::NoProgram {
                detail: without_field(&error.detail),
                exists: error.code == ErrorCode::NotExecutable,
            },
            // Others are malformed bodies.
            ErrorCode::Invalid if error.detail.starts_with(FIELD) => Self::Invalid {
                detail: without_field(&error.detail),
            },
            _ => Self::Refused {
                detail: error.to_string(),
            },
        }
    }
}

pub(super) fn info(key: &HeaderValue) -> Request<Body> {
    new(key, Method::GET, "/v1/info", Bytes::new())
}

/// Executes an action. The response starts at this offset of the output.
pub(super) fn execute(
    key: &HeaderValue,
    id: &ActionId,
    offset: u64,
    action: Bytes,
) -> Request<Body> {
    let mut request = new(
        key,
        Method::POST,
        &format!("/v1/actions/{id}?after={offset}"),
        action,
    );
    request.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    request
}

/// Attaches to an action. The response starts at this offset of the output.
pub(super) fn attach(key: &HeaderValue, id: &ActionId, offset: u64) -> Request<Body> {
    new(
        key,
        Method::GET,
        &format!("/v1/actions/{id}?after={offset}"),
        Bytes::new(),
    )
}

pub(super) fn cancel(key: &HeaderValue, id: &ActionId) -> Request<Body> {
    new(
        key,
        Method::DELETE,
        &format!("/v1/actions/{id}"),
        Bytes::new(),
    )
}

/// A request with a complete body, which is empty or JSON.
pub(super) fn new(key: &HeaderValue, method: Method, path: &str, body: Bytes) -> Request<Body> {
    let body = Full::new(body)
        .map_err(|never| match never {})
        .boxed_unsync();
    streaming(key, method, path, body)
}

/// A request with a JSON body, which never fails to serialize: all keys are texts.
pub(super) fn json(key: &HeaderValue, path: &str, body: &impl Serialize) -> Request<Body> {
    let body = serde_json::to_vec(body).unwrap_or_default();
    new(key, Method::POST, path, body.into())
}

/// A request with a streaming body.
pub(super) fn streaming(
    key: &HeaderValue,
    method: Method,
    path: &str,
    body: Body,
) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // Ids contain only letters, digits, `-`, `_` and `.`, and the rest is encoded: the path always
    // parses.
    *request.uri_mut() = format!("{AUTHORITY}{path}").parse().unwrap_or_default();
    request.headers_mut().insert(KEY_HEADER, key.clone());
    request
}

/// Sends a request and waits for the head of the response.
pub(super) async fn send(
    sender: &mut RequestSender,
    request: Request<Body>,
) -> Result<Response<Incoming>, TransportError> {
    let response = async {
        sender.ready().await?;
        sender.send_request(request).await
    };
    match timeout(RESPONSE_TIMEOUT, response).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(TransportError(format!(
            "no response within {} s",
            RESPONSE_TIMEOUT.as_secs()
        ))),
    }
}

/// Encodes the value of a query parameter.
pub(super) fn percent_encode(text: &str) -> String {
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut encoded, byte| {
            if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
                encoded.push(char::from(byte));
            } else {
                let _ = write!(encoded, "%{byte:02X}"); // cannot fail
            }
            encoded
        })
}

/// Sends an idempotent request, over as many connections as needed. Returns the response, or the
/// server's error.
pub(super) async fn send_with_retries(
    link: &Link,
    request: impl Fn() -> Request<Body>,
) -> Result<Result<Response<Incoming>, ErrorResponse>, SandboxError> {
    let mut last_error = String::new();
    for _ in 0..MAX_ATTEMPTS {
        let mut sender = link.sender().await?;
        match send(&mut sender, request()).await {
            Ok(response) if response.status().is_success() => return Ok(Ok(response)),
            Ok(response) => return Ok(Err(read_error(response).await)),
            Err(error) => last_error = error.to_string(),
        }
    }
    Err(SandboxError::Unreachable {
        detail: format!("its connection broke {MAX_ATTEMPTS} times in a row: {last_error}"),
    })
}

/// Reads a response that is one short JSON value.
pub(super) async fn read_json<T: DeserializeOwned>(
    response: Response<Incoming>,
) -> Result<T, TransportError> {
    read_bounded_json(response, MAX_BODY_BYTES).await
}

/// Reads a response that is a list of files.
pub(super) async fn read_list<T: DeserializeOwned>(
    response: Response<Incoming>,
) -> Result<T, TransportError> {
    read_bounded_json(response, MAX_LIST_BYTES).await
}

async fn read_bounded_json<T: DeserializeOwned>(
    response: Response<Incoming>,
    max_bytes: usize,
) -> Result<T, TransportError> {
    let body = Limited::new(response.into_body(), max_bytes).collect();
    let body = match timeout(BODY_TIMEOUT, body).await {
        Ok(body) => {
            body.map_err(|error| format!("reading the response: {}", format_chain(error.as_ref())))
        }
        Err(_) => Err(format!(
            "the response did not end within {} s",
            BODY_TIMEOUT.as_secs()
        )),
    };
    let body = body.map_err(TransportError)?.to_bytes();
    serde_json::from_slice(&body)
        .map_err(|error| TransportError(format!("decoding the response: {error}")))
}

/// Reads an error response. If its body cannot be read, only the status is known.
pub(super) async fn read_error(response: Response<Incoming>) -> ErrorResponse {
    let status = response.status();
    let (code, detail) = match read_json(response).await {
        Ok(ErrorBody { code, detail }) => (code, detail),
        Err(error) => (ErrorCode::Unknown, error.to_string()),
    };
    ErrorResponse {
        status,
        code,
        detail: quote(&detail),
    }
}
