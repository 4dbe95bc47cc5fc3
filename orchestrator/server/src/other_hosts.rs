//! Requests for a conversation that another host runs. They are forwarded to that host, so that a
//! client may send them to any.
//!
//! The other host checks the key again: the request keeps its headers, and all hosts of a store
//! have the same keys.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use accounts::Caller;
use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use protocol::ConversationId;
use tokio::time::{sleep, timeout};

use crate::base_path::ReceivedUri;
use crate::client_address::Client;
use crate::connections::REQUEST_HEAD_TIMEOUT;
use crate::error::ApiError;
use crate::extract::parse_id;
use crate::proxy::{self, Upgrade};
use crate::socket_io;
use crate::state::ServerState;

/// Marks what another host has forwarded, so that it is not forwarded again.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("x-glovebox-forwarded");

/// Time to connect to another host. One that has just ended still holds its conversations for a
/// while.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for another host to start its response, unless the request has a [`ResponseTimeout`].
const HEAD_TIMEOUT: Duration = Duration::from_mins(2);

/// Time for which a forwarded client is believed. Longer than the clocks of hosts differ.
const SIGNATURE_LIFETIME: Duration = Duration::from_mins(5);

/// Interval at which the host of a conversation is checked while its response is awaited.
const HOLDER_INTERVAL: Duration = Duration::from_secs(2);

/// Client of the other hosts that share the store.
#[derive(Debug)]
pub struct OtherHosts(reqwest::Client);

/// Time for another host to start the response to a request that takes longer than others. An
/// extension of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseTimeout(pub(crate) Duration);

/// Another host has responded, and has recorded the change in the audit log. An extension of
/// responses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OtherHostResponse;

/// Why a request could not be forwarded.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error("cannot send the request")]
    Send(#[from] reqwest::Error),
    #[error("there is no response in time")]
    Timeout,
    #[error("it no longer runs the conversation")]
    NotHolder,
}

impl OtherHosts {
    /// Checks the URL at which other hosts reach this one: a scheme and an authority.
    ///
    /// # Errors
    /// A text for the operator.
    pub fn parse_url(text: &str) -> Result<String, String> {
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            let is_http = uri
                .scheme_str()
                .is_some_and(|scheme| ["http", "https"].contains(&scheme));
            is_http && uri.path() == "/" && uri.query().is_none()
        });
        uri.map(|_| text.to_owned())
            .ok_or_else(|| "expected http://HOST:PORT or https://HOST:PORT".to_owned())
    }

    /// Creates the client.
    ///
    /// # Errors
    /// TLS cannot be configured.
    pub fn new() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client(tls::roots(), &[])?)
            .connect_timeout(CONNECT_TIMEOUT)
            // A host closes idle connections, and a request that meets the end of its connection
            // fails.
            .pool_idle_timeout(REQUEST_HEAD_TIMEOUT / 2)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only() // for changes of the protocol
            .build()?;
        Ok(Self(client))
    }
}

/// Forwards a request for a conversation that another host runs, and passes on all others. Those
/// without a [`Caller`] are not for a conversation, or not authenticated yet.
pub(crate) async fn forward(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let id = conversation(uri(&request)).filter(|_| request.extensions().get::<Caller>().is_some());
    let Some(id) = id else {
        return next.run(request).await;
    };
    match forward_to_holder(&state, &id, request).await {
        Ok(response) => response,
        Err(request) => next.run(request).await,
    }
}

/// Forwards a request to the other host that runs a conversation. Returns the request if there is
/// none, if its caller may not see the conversation, which this host answers as any other does, or
/// if that host cannot be reached and this one can respond to a read from the store.
pub(crate) async fn forward_to_holder(
    state: &ServerState,
    id: &ConversationId,
    request: Request,
) -> Result<Response, Request> {
    let is_forwarded = request.headers().contains_key(FORWARDED);
    let Some(hosts) = state.other_hosts.as_ref() else {
        return Err(request);
    };
    let Some(address) = find_host(state, id).await else {
        return Err(request);
    };
    let caller = request.extensions().get::<Caller>().cloned();
    let is_allowed = match &caller {
        Some(caller) => state.authorize(caller, id).await.is_ok(),
        None => false,
    };
    if !is_allowed {
        return Err(request);
    }
    let own = is_simple_read(&request).then(|| copy_of(&request));
    if is_forwarded {
        // The holder has this address, but has ended: its conversations are taken over soon.
        return match own {
            Some(_) => Err(request),
            None => Ok(ApiError::OtherHost.into_response()),
        };
    }
    let sent = tokio::select! {
        sent = send(state, hosts, &address, request) => sent,
        () = wait_for_other_holder(state, id, &address) => Err(ForwardError::NotHolder),
    };
    match sent {
        Ok(response) => Ok(response),
        Err(error) => {
            tracing::warn!(
                address,
                error = &error as &dyn Error,
                "cannot reach another host"
            );
            match own {
                Some(own) => Err(own),
                None => Ok(ApiError::OtherHost.into_response()),
            }
        }
    }
}

/// Returns the address of the other host that runs a conversation.
async fn find_host(state: &ServerState, id: &ConversationId) -> Option<String> {
    state
        .conversations
        .conversations()
        .other_host(id)
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn Error,
                "cannot find the host of a conversation"
            );
            None
        })
}

/// Returns the value of [`FORWARDED`], from which the other host takes the client. It is signed,
/// because clients could send it too.
fn to_header(state: &ServerState, client: Option<Client>) -> HeaderValue {
    let value = client.map(|client| {
        let client = client.to_string();
        let signature = state.signatures.sign(&purpose(&client), SIGNATURE_LIFETIME);
        format!("{client} {signature}")
    });
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| HeaderValue::from_static("1"))
}

/// Returns the client of a request that another host has forwarded. `None` if none has.
pub(crate) fn forwarded_client(state: &ServerState, headers: &HeaderMap) -> Option<Client> {
    let (client, signature) = headers.get(FORWARDED)?.to_str().ok()?.rsplit_once(' ')?;
    state
        .signatures
        .is_valid(&purpose(client), signature)
        .then(|| client.parse().ok())?
}

/// What the signature of a client is valid for.
fn purpose(client: &str) -> String {
    format!("request of {client}")
}

/// Waits until the host at an address no longer runs a conversation: it may hang, and be replaced.
async fn wait_for_other_holder(state: &ServerState, id: &ConversationId, address: &str) {
    loop {
        sleep(HOLDER_INTERVAL).await;
        if find_host(state, id).await.as_deref() != Some(address) {
            return;
        }
    }
}

/// Returns the address of a request, before nested routers cut it.
fn uri(request: &Request) -> &Uri {
    request
        .extensions()
        .get::<OriginalUri>()
        .map_or(request.uri(), |uri| &uri.0)
}

/// Returns the conversation that a request is for.
pub(crate) fn conversation(uri: &Uri) -> Option<ConversationId> {
    if uri.path().starts_with(socket_io::PATH) {
        let mut query = form_urlencoded::parse(uri.query()?.as_bytes());
        return query
            .find(|(name, _)| name == "conversation_id")?
            .1
            .parse()
            .ok();
    }
    let path = uri.path().strip_prefix("/api/")?;
    let path = path.strip_prefix("v2/").unwrap_or(path);
    parse_id(path.strip_prefix("conversations/")?.split('/').next()?)
}

/// Whether a request has no body and changes nothing.
fn is_simple_read(request: &Request) -> bool {
    request.method().is_safe() && !request.headers().contains_key(http::header::UPGRADE)
}

fn copy_of(request: &Request) -> Request {
    let mut copy = Request::new(Body::empty());
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    copy
}

/// Sends a request to the host at an address, and returns its response.
async fn send(
    state: &ServerState,
    hosts: &OtherHosts,
    address: &str,
    mut request: Request,
) -> Result<Response, ForwardError> {
    let received = request.extensions().get::<ReceivedUri>().map(|uri| &uri.0);
    let path = received
        .unwrap_or_else(|| uri(&request))
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let url = format!("{}{path}", address.trim_end_matches('/'));
    let head_timeout = request
        .extensions()
        .get()
        .map_or(HEAD_TIMEOUT, |ResponseTimeout(timeout)| *timeout);
    let upgrade = Upgrade::take(&mut request);
    let (parts, body) = request.into_parts();
    let mut headers = parts.headers;
    proxy::remove_connection(&mut headers);
    headers.insert(FORWARDED, to_header(state, Client::find(&parts.extensions)));
    if let Some(upgrade) = &upgrade {
        upgrade.set(&mut headers);
    }
    let body = reqwest::Body::wrap_stream(body.into_data_stream());
    let sending = hosts
        .0
        .request(parts.method, url)
        .headers(headers)
        .body(body)
        .send();
    // Only the head: a stream has no end.
    let response = timeout(head_timeout, sending)
        .await
        .map_err(|_| ForwardError::Timeout)??;
    Ok(to_response(state, response, upgrade))
}

fn to_response(
    state: &ServerState,
    response: reqwest::Response,
    upgrade: Option<Upgrade>,
) -> Response {
    let (status, mut headers) = (response.status(), response.headers().clone());
    let protocol = headers.get(http::header::UPGRADE).cloned();
    proxy::remove_connection(&mut headers);
    let body = match (upgrade, protocol) {
        (Some(upgrade), Some(protocol)) if status == StatusCode::SWITCHING_PROTOCOLS => {
            proxy::set_protocol(&mut headers, protocol);
            let copying = upgrade.copy(async move { response.upgrade().await.ok() });
            let shutdown = state.streams.clone();
            tokio::spawn(async move { shutdown.run_until_cancelled_owned(copying).await });
            Body::empty()
        }
        _ => Body::from_stream(response.bytes_stream()),
    };
    let mut forwarded = Response::new(body);
    *forwarded.status_mut() = status;
    *forwarded.headers_mut() = headers;
    forwarded.extensions_mut().insert(OtherHostResponse);
    forwarded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversation_of_a_request_is_found() {
        let found =
            |uri: &'static str| conversation(&Uri::from_static(uri)).map(|id| id.to_string());
        for uri in [
            "/api/conversations/abc",
            "/api/conversations/%61bc",
            "/api/conversations/abc/events?limit=5",
            "/api/v2/conversations/abc/stream?after=1",
            "/socket.io/?EIO=4&conversation_id=abc&transport=websocket",
        ] {
            assert_eq!(found(uri).as_deref(), Some("abc"), "{uri}");
        }
        for uri in [
            "/api/conversations",
            "/api/settings",
            "/health",
            "/socket.io/",
            "/conversations/abc",
            "/",
        ] {
            assert_eq!(found(uri), None, "{uri}");
        }
    }
}
