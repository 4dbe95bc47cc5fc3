//! The HTTP client of a server whose messages have a bounded number of values.
//!
//! rmcp's own client bounds a message by its bytes only, and parses it: one of 16 MB in objects
//! takes 2.6 GB. It serves here where nothing is parsed.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use protocol::untrusted_json;
use reqwest::{Client, Response};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::MAX_MESSAGE_BYTES;
use super::sse::{Events, is_small};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";

type HttpError = StreamableHttpError<reqwest::Error>;

#[derive(Debug, Clone)]
pub(super) struct BoundedClient(pub(super) Client);

impl StreamableHttpClient for BoundedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        key: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let has_session = session.is_some();
        let mut request = self.0.post(uri.as_ref());
        request = request.header(ACCEPT, [EVENTS, JSON].join(", "));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            request = request.header(SESSION, session.as_ref());
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = tls::foreign(request.json(&message).send()).await?;
        let awaits_response = matches!(message, ClientJsonRpcMessage::Request(_));
        read_response(response, awaits_response, has_session).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        key: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        tls::foreign(self.0.delete_session(uri, session, key, headers)).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        key: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let max = MAX_MESSAGE_BYTES;
        let events = self.0.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event_id,
            key,
            headers,
            max,
        );
        let is_small = |event: &Result<Sse, SseError>| ready(event.as_ref().map_or(true, is_small));
        Ok(tls::foreign(events).await?.take_while(is_small).boxed())
    }
}

/// Reads the response to a message: a message, or a stream of them.
async fn read_response(
    response: Response,
    awaits_response: bool,
    has_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let header = |name| {
        let value: Option<&HeaderValue> = response.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let status = response.status();
    let content_type = header(CONTENT_TYPE.as_str());
    let session = header(SESSION);
    match (status, header(WWW_AUTHENTICATE.as_str())) {
        (StatusCode::UNAUTHORIZED, Some(challenge)) => {
            return Err(HttpError::AuthRequired(AuthRequiredError::new(challenge)));
        }
        (StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _) => {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        (StatusCode::NOT_FOUND, _) if has_session => return Err(HttpError::SessionExpired),
        _ => {}
    }
    let kind = content_type.as_deref().unwrap_or_default();
    if status.is_success() && kind.starts_with(EVENTS) {
        let events = Events::new(response.bytes_stream()).into_stream();
        return Ok(StreamableHttpPostResponse::Sse(events, session));
    }
    let is_json = kind.starts_with(JSON);
    let body = read_body(response).await?;
    let parsed = untrusted_json::from_slice::<ServerJsonRpcMessage>(&body);
    match parsed {
        Ok(message) if is_json && status.is_success() => {
            Ok(StreamableHttpPostResponse::Json(message, session))
        }
        // Servers report errors of their protocol with any status.
        Ok(message @ ServerJsonRpcMessage::Error(_)) if is_json => {
            Ok(StreamableHttpPostResponse::Json(message, session))
        }
        // Nothing follows a notification, so its response does not matter.
        _ if status.is_success() && !awaits_response => Ok(StreamableHttpPostResponse::Accepted),
        Err(error) if is_json && status.is_success() => Err(HttpError::Deserialize(error)),
        _ if status.is_success() => Err(HttpError::UnexpectedContentType(content_type)),
        _ => {
            let text: String = String::from_utf8_lossy(&body).chars().take(1000).collect();
            Err(HttpError::UnexpectedServerResponse(
                format!("HTTP {status}: {text}").into(),
            ))
        }
    }
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_MESSAGE_BYTES {
            let max_size = MAX_MESSAGE_BYTES;
            return Err(HttpError::ResponseBodyTooLarge { max_size });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
