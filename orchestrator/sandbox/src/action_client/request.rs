//! Requests to an action server, and what its answers mean. Everything that is read is bounded in size and time.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::SandboxError;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use protocol::ActionId;
use protocol::sandbox_api::{ErrorBody, ErrorCode, KEY_HEADER};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::connection::{Body, Requests};
use super::dialer::DialError;
use super::link::Link;
use crate::placement::chain;

/// Until the answer's headers: a server answers at once, but a file to write must cross first.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Until a whole short body.
const BODY_WAIT: Duration = Duration::from_secs(5);
/// The longest body that is read whole: a list of a thousand ports with their processes.
const MAX_BODY_LENGTH: usize = 1 << 20;
/// How often a request is sent that may be sent twice.
const ATTEMPTS: u32 = 3;
/// The longest text of a server that goes into an error, in characters.
const MAX_QUOTED: usize = 1024;

/// HTTP/2 wants an authority; nothing resolves it.
const AUTHORITY: &str = "http://sandbox";

/// The request got no whole answer. It may be sent again over another connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub(super) String);

impl From<Broken> for SandboxError {
    fn from(broken: Broken) -> Self {
        Self::Malformed { detail: broken.to_string() }
    }
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        Self(chain(&error))
    }
}

/// How the server begins a sentence about a program, which says nothing to who named the program.
const PROGRAM_FIELD: &str = "field `argv`: ";

/// The server's no.
#[derive(Debug, thiserror::Error)]
#[error("{status}: {detail}")]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: ErrorCode,
    detail: String,
}

impl Refusal {
    pub(super) fn is_for_the_key(&self) -> bool {
        self.status == StatusCode::FORBIDDEN || self.status == StatusCode::UNAUTHORIZED
    }
}

impl From<Refusal> for SandboxError {
    fn from(refusal: Refusal) -> Self {
        match refusal.code {
            ErrorCode::NoProgram | ErrorCode::NotExecutable => Self::NoProgram {
                detail: refusal.detail.trim_start_matches(PROGRAM_FIELD).to_owned(),
                exists: refusal.code == ErrorCode::NotExecutable,
            },
            _ => Self::Refused { detail: refusal.to_string() },
        }
    }
}

/// The key as a header that is not logged and not kept in header compression.
pub(super) fn key_header(key: &SecretString) -> Result<HeaderValue, DialError> {
    let mut header = HeaderValue::from_str(key.expose_secret())
        .map_err(|_| DialError::Refused("the key cannot be sent in a header".into()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Who are you?
pub(super) fn info(key: &HeaderValue) -> Request<Body> {
    request(key, Method::GET, "/v1/info", Bytes::new())
}

/// Perform this, and tell what comes after the first `heard` bytes of output.
pub(super) fn send_action(key: &HeaderValue, id: &ActionId, heard: u64, action: Bytes) -> Request<Body> {
    let mut request = request(key, Method::POST, &format!("/v1/actions/{id}?after={heard}"), action);
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

/// Tell what comes after the first `heard` bytes of output.
pub(super) fn attach(key: &HeaderValue, id: &ActionId, heard: u64) -> Request<Body> {
    request(key, Method::GET, &format!("/v1/actions/{id}?after={heard}"), Bytes::new())
}

/// End what this action started.
pub(super) fn cancel(key: &HeaderValue, id: &ActionId) -> Request<Body> {
    request(key, Method::DELETE, &format!("/v1/actions/{id}"), Bytes::new())
}

/// A request with a whole body, which is JSON if there is one.
pub(super) fn request(key: &HeaderValue, method: Method, path: &str, body: Bytes) -> Request<Body> {
    let whole = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    carrying(key, method, path, whole)
}

/// A request with a body that comes as it is read.
pub(super) fn carrying(key: &HeaderValue, method: Method, path: &str, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    // Ids hold only letters, digits, `-`, `_` and `.`, and all else is escaped: the path always parses.
    *request.uri_mut() = format!("{AUTHORITY}{path}").parse().unwrap_or_default();
    request.headers_mut().insert(KEY_HEADER, key.clone());
    request
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn send(
    requests: &mut Requests,
    request: Request<Body>,
) -> Result<Response<Incoming>, Broken> {
    let answered = async {
        requests.ready().await?;
        requests.send_request(request).await
    };
    match timeout(ANSWER_WAIT, answered).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Broken(format!("no answer within {} s", ANSWER_WAIT.as_secs()))),
    }
}

/// A text as the value of a query's parameter.
pub(super) fn escaped(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}"); // a String takes everything
        }
        escaped
    })
}

/// Sends what may be sent twice, over as many connections as it takes: the answer, or the server's no.
pub(super) async fn ask(
    link: &Link,
    request: impl Fn() -> Request<Body>,
) -> Result<Result<Response<Incoming>, Refusal>, SandboxError> {
    let mut broken = String::new();
    for _ in 0..ATTEMPTS {
        let mut requests = link.requests().await?;
        match send(&mut requests, request()).await {
            Ok(response) if response.status().is_success() => return Ok(Ok(response)),
            Ok(response) => return Ok(Err(refusal(response).await)),
            Err(error) => broken = error.to_string(),
        }
    }
    Err(SandboxError::Lost { detail: format!("its connection broke {ATTEMPTS} times in a row: {broken}") })
}

/// Reads an answer that is one short JSON value.
pub(super) async fn read_json<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Broken> {
    let body = read_short(response).await?;
    serde_json::from_slice(&body).map_err(|error| Broken(format!("decoding the answer: {error}")))
}

/// Reads why the server says no. When that cannot be read, its status must do.
pub(super) async fn refusal(response: Response<Incoming>) -> Refusal {
    let status = response.status();
    let body = read_short(response).await;
    match body.map(|body| serde_json::from_slice::<ErrorBody>(&body)) {
        Ok(Ok(ErrorBody { code, detail })) => Refusal { status, code, detail: quoted(&detail) },
        Ok(Err(_)) => {
            Refusal { status, code: ErrorCode::Unknown, detail: "without a reason that we can read".into() }
        }
        Err(broken) => Refusal { status, code: ErrorCode::Unknown, detail: broken.to_string() },
    }
}

async fn read_short(response: Response<Incoming>) -> Result<Bytes, Broken> {
    let body = Limited::new(response.into_body(), MAX_BODY_LENGTH).collect();
    match timeout(BODY_WAIT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(Broken(format!("reading the answer: {}", chain(error.as_ref())))),
        Err(_) => Err(Broken(format!("the answer has no end within {} s", BODY_WAIT.as_secs()))),
    }
}

/// A server's text, fit for a terminal: shortened, and without control characters that could move a cursor.
pub(super) fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
