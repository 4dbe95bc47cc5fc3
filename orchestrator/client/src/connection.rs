//! Requests to a server, and their repetition.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conversations::{ByteSource, ServiceError, ServiceErrorKind};
use futures_util::{TryStreamExt as _, stream};
use http::{HeaderValue, Method, header};
use protocol::ConversationId;
use reqwest::{Client, RequestBuilder, Response, Url};
use rustls::RootCertStore;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::error::{self, AddressError};
use crate::retry::Retry;

/// Time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for a whole request. A workspace with millions of files is deleted in it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Time for which a request is repeated after its first failure while the server cannot be
/// reached, such as for a restart.
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Time without a byte after which content counts as lost. The server gives up a sandbox that is
/// silent for a minute.
const CONTENT_TIMEOUT: Duration = Duration::from_secs(90);

/// Time for an upload: a gigabyte at the lowest rate that the server accepts, 16 KiB/s.
const UPLOAD_TIMEOUT: Duration = Duration::from_hours(20);

/// Size of the parts in which content is sent.
const PART_BYTES: usize = 128 << 10;

/// Maximum length of a reply, in bytes. A page of events ends with the event that exceeds 8 MiB.
const MAX_REPLY_BYTES: usize = 128 << 20;

/// Maximum length of an error that is read, in bytes.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A server, and the key of its user.
pub(crate) struct Connection {
    http: Client,
    /// The address, without a slash at its end.
    url: String,
    authorization: HeaderValue,
    /// Whether the server has responded before.
    was_reached: AtomicBool,
}

/// When a request may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    /// Also if the server may have received it.
    Safe,
    /// Only if no connection was opened for it.
    IfUnsent,
}

/// A request to the API.
pub(crate) struct ApiRequest {
    method: Method,
    /// Path relative to `/api/v2`.
    path: String,
    query: String,
    body: Option<Vec<u8>>,
    repetition: Repetition,
    /// Maximum length of the reply, in bytes.
    max_reply_bytes: usize,
}

impl ApiRequest {
    pub(crate) fn new(method: Method, path: &str, repetition: Repetition) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: String::new(),
            body: None,
            repetition,
            max_reply_bytes: MAX_REPLY_BYTES,
        }
    }

    /// Returns a request to a route of a conversation, which starts with a slash unless it is
    /// empty. It is safe to repeat.
    pub(crate) fn of_conversation(method: Method, id: &ConversationId, route: &str) -> Self {
        Self::new(
            method,
            &format!("/conversations/{id}{route}"),
            Repetition::Safe,
        )
    }

    /// Sets the body. Never fails: all keys are texts.
    pub(crate) fn with_body(self, body: &impl Serialize) -> Self {
        Self {
            body: serde_json::to_vec(body).ok(),
            ..self
        }
    }

    pub(crate) fn with_max_reply_bytes(self, max_reply_bytes: usize) -> Self {
        Self {
            max_reply_bytes,
            ..self
        }
    }

    /// Sets the query. Never fails: all values are texts, numbers and booleans.
    pub(crate) fn with_query(self, query: &impl Serialize) -> Self {
        Self {
            query: serde_urlencoded::to_string(query).unwrap_or_default(),
            ..self
        }
    }
}

impl Connection {
    pub(crate) fn new(
        url: &str,
        key: &SecretString,
        roots: RootCertStore,
    ) -> Result<Self, AddressError> {
        let url = normalize_address(url)?;
        let bearer = format!("Bearer {}", key.expose_secret());
        let mut authorization = HeaderValue::from_str(&bearer).map_err(|_| AddressError::Key)?;
        authorization.set_sensitive(true);
        let tls = tls::client(roots, &[b"h2", b"http/1.1"])
            .map_err(|error| AddressError::Tls(error.into()))?;
        let http = Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(CONNECT_TIMEOUT)
            // The key is for this server only.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| AddressError::Tls(error.into()))?;
        Ok(Self {
            http,
            url,
            authorization,
            was_reached: AtomicBool::new(false),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the server has responded before.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Sends a request, and parses the reply.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        request: ApiRequest,
    ) -> Result<T, ServiceError> {
        let reply = self.send_for_bytes(request).await.0?;
        serde_json::from_slice(&reply).map_err(|error| error::malformed(error, &self.url))
    }

    /// Sends a request. Returns the reply, and whether the server may have received it before.
    pub(crate) async fn send_for_bytes(
        &self,
        request: ApiRequest,
    ) -> (Result<Vec<u8>, ServiceError>, bool) {
        let attempt = || self.fetch(&request);
        self.repeat(request.repetition, attempt).await
    }

    /// Sends a request once, and reads the reply.
    async fn fetch(&self, request: &ApiRequest) -> Result<Vec<u8>, Failure> {
        let response = self.open(request, Some(REQUEST_TIMEOUT)).await?;
        let reply = read(response, request.max_reply_bytes).await;
        reply.map_err(|error| self.reply_failure(error))
    }

    /// Sends a request that removes something, which is gone already if the reply to an earlier
    /// attempt was lost.
    pub(crate) async fn remove(&self, request: ApiRequest) -> Result<(), ServiceError> {
        match self.send_for_bytes(request).await {
            (Err(error), true) if error.kind == ServiceErrorKind::NotFound => Ok(()),
            (reply, _) => reply.map(drop),
        }
    }

    /// Sends a request for content of any length. Returns the content, which fails if the
    /// connection is lost or silent.
    pub(crate) async fn download(&self, request: ApiRequest) -> Result<ByteSource, ServiceError> {
        let attempt = || async {
            let response = timeout(REQUEST_TIMEOUT, self.open(&request, None)).await;
            response.unwrap_or_else(|_| Err(Failure::Lost(error::silent(&self.url))))
        };
        let response = self.repeat(request.repetition, attempt).await.0?;
        let chunks = stream::try_unfold(response, async |mut response| {
            match timeout(CONTENT_TIMEOUT, response.chunk()).await {
                Ok(Ok(chunk)) => Ok(chunk.map(|chunk| (chunk, response))),
                Ok(Err(error)) => Err(io::Error::other(error.without_url())),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        });
        // `StreamReader` would treat an empty chunk as the end.
        let chunks = chunks.try_filter(|chunk| std::future::ready(!chunk.is_empty()));
        Ok(Box::new(StreamReader::new(Box::pin(chunks))))
    }

    /// Sends a request with content of any length, once.
    pub(crate) async fn upload(
        &self,
        request: ApiRequest,
        content: ByteSource,
    ) -> Result<(), ServiceError> {
        let parts = ReaderStream::with_capacity(content, PART_BYTES);
        let sending = self.builder(&request, Some(UPLOAD_TIMEOUT));
        let body = reqwest::Body::wrap_stream(parts);
        match self.respond(sending.body(body)).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.into_error()),
        }
    }

    /// Attempts a request until it succeeds or may not be repeated. Returns the reply, and whether
    /// the server may have received the request before.
    async fn repeat<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        repetition: Repetition,
        attempt: impl Fn() -> F,
    ) -> (Result<T, ServiceError>, bool) {
        let mut retry = Retry::new(RETRY_TIMEOUT);
        let mut may_be_received = false;
        loop {
            let error = match attempt().await {
                Ok(reply) => return (Ok(reply), may_be_received),
                Err(Failure::Unsent(error)) if self.was_reached() => error,
                Err(Failure::Lost(error)) if repetition == Repetition::Safe => {
                    may_be_received = true;
                    error
                }
                Err(failure) => return (Err(failure.into_error()), may_be_received),
            };
            tracing::debug!(%error, "a request is repeated");
            if !retry.wait().await {
                return (Err(error), may_be_received);
            }
        }
    }

    /// Sends a request once. Returns the response if it is a success.
    pub(crate) async fn open(
        &self,
        request: &ApiRequest,
        timeout: Option<Duration>,
    ) -> Result<Response, Failure> {
        self.respond(self.builder(request, timeout)).await
    }

    /// Sends a request. Returns the response if it is a success.
    async fn respond(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let sent = request.send().await;
        let response = sent.map_err(|error| match error.is_connect() {
            true => Failure::Unsent(error::connection_error(error, &self.url)),
            false => Failure::Lost(error::connection_error(error, &self.url)),
        })?;
        self.was_reached.store(true, Ordering::Relaxed);
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = read(response, MAX_ERROR_BYTES).await.unwrap_or_default();
        let error = error::response_error(status, &body);
        Err(match error.kind {
            ServiceErrorKind::Unavailable => Failure::Lost(error),
            _ => Failure::Rejected(error),
        })
    }

    fn builder(&self, request: &ApiRequest, timeout: Option<Duration>) -> RequestBuilder {
        let ApiRequest {
            method,
            path,
            query,
            body,
            ..
        } = request;
        let separator = if query.is_empty() { "" } else { "?" };
        let url = format!("{}/api/v2{path}{separator}{query}", self.url);
        let mut builder = self
            .http
            .request(method.clone(), url)
            .header(header::AUTHORIZATION, self.authorization.clone());
        if let Some(timeout) = timeout {
            builder = builder.timeout(timeout);
        }
        match body {
            Some(body) => builder
                .header(header::CONTENT_TYPE, "application/json")
                .body(body.clone()),
            None => builder,
        }
    }

    fn reply_failure(&self, error: ReadError) -> Failure {
        match error {
            ReadError::Connection(error) => {
                Failure::Lost(error::connection_error(error, &self.url))
            }
            ReadError::TooLong => {
                Failure::Rejected(error::malformed("the reply is too long", &self.url))
            }
        }
    }
}

/// Returns the address of a server without a slash at its end.
///
/// # Errors
/// [`AddressError::Url`] or [`AddressError::Credentials`].
pub fn normalize_address(url: &str) -> Result<String, AddressError> {
    let parsed = Url::parse(url).map_err(|_| AddressError::Url(url.to_owned()))?;
    if !["http", "https"].contains(&parsed.scheme()) {
        return Err(AddressError::Url(url.to_owned()));
    }
    let has_credentials = !parsed.username().is_empty() || parsed.password().is_some();
    if has_credentials || parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(AddressError::Credentials);
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

/// Why an attempt failed.
pub(crate) enum Failure {
    /// No connection was opened.
    Unsent(ServiceError),
    /// The server, or a part of it, could not be reached. It may have received the request.
    Lost(ServiceError),
    /// The server has rejected the request, or its reply cannot be used.
    Rejected(ServiceError),
}

impl Failure {
    pub(crate) fn into_error(self) -> ServiceError {
        match self {
            Self::Unsent(error) | Self::Lost(error) | Self::Rejected(error) => error,
        }
    }
}

enum ReadError {
    Connection(reqwest::Error),
    TooLong,
}

/// Reads a body of at most `max` bytes.
async fn read(mut response: Response, max: usize) -> Result<Vec<u8>, ReadError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(ReadError::Connection)? {
        if body.len() + chunk.len() > max {
            return Err(ReadError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
