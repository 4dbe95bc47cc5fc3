//! Programs in sandboxes that listen on a port, each at a host name and thus an origin of its own, so that nothing of a sandbox
//! is ever served on the origin of the API.
//!
//! Not `axum-reverse-proxy`: it connects to addresses, and a sandbox is reached over a stream.

mod access;
mod headers;
mod host;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use protocol::ConversationId;
use tokio::io::copy_bidirectional;
use tokio::time::timeout;

use crate::error::ApiError;
use crate::origin;
use crate::state::ServerState;
use access::PortAccess;
pub use host::PortHosts;
use host::SandboxPort;

/// Time for a program to start its response. Long, because a page may wait for news with a request.
const HEAD_TIMEOUT: Duration = Duration::from_mins(5);

/// Serves requests to host names of ports, and passes on all others.
pub(crate) async fn serve(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let host = origin::host(request.uri(), request.headers());
    let target = host.as_ref().and_then(|host| Some((state.port_hosts.find(host)?, host.clone())));
    let Some((target, host)) = target else { return next.run(request).await };
    match admit(&state, &target, &host, &request) {
        Admission::Forward => {
            let forwarded = forward(&state, &target, &host, request).await;
            forwarded.unwrap_or_else(axum::response::IntoResponse::into_response)
        }
        Admission::Respond(response) => response,
    }
}

/// Returns a link to a port of a conversation's sandbox, which is valid for some minutes. `None` if the id of the conversation
/// cannot be in a host name.
pub(crate) fn link(state: &ServerState, conversation: &ConversationId, port: u16) -> Option<String> {
    let target = SandboxPort { conversation: conversation.clone(), port };
    PortAccess { signatures: &state.signatures, target: &target }.link(&state.port_hosts)
}

/// What to do with a request to a port.
enum Admission {
    Forward,
    Respond(Response),
}

/// Decides whether a request may reach a port. A link with a token leads to the same address with a cookie instead.
fn admit(state: &ServerState, target: &SandboxPort, host: &Authority, request: &Request) -> Admission {
    let (headers, access) = (request.headers(), PortAccess { signatures: &state.signatures, target });
    if !origin::is_same_origin(headers, host) {
        return Admission::Respond(ApiError::ForeignOrigin.into_response());
    }
    if let Some(path) = access.accept_token(request.uri()) {
        let cookie = access.cookie(&state.port_hosts).to_string();
        let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, path)];
        return Admission::Respond((StatusCode::SEE_OTHER, headers).into_response());
    }
    match state.key.is_in(headers) || access.has_cookie(headers) {
        true => Admission::Forward,
        false => Admission::Respond(ApiError::NoPortCookie.into_response()),
    }
}

/// Forwards a request, on a connection of its own.
async fn forward(
    state: &ServerState,
    target: &SandboxPort,
    host: &Authority,
    mut request: Request,
) -> Result<Response, ApiError> {
    let conversations = state.conversations.conversations();
    let stream = conversations.connect_port(&target.conversation, target.port).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ApiError::Program)?;
    // Ends with the response, or when the client is gone.
    spawn_until_shutdown(state, async move { drop(connection.with_upgrades().await) });

    let scheme = state.port_hosts.scheme();
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let client = upgrade.as_ref().map(|_| hyper::upgrade::on(&mut request));
    headers::to_program(request.headers_mut(), target.port, scheme, host, &state.key);
    set_upgrade(request.headers_mut(), upgrade);
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    let responding = timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
    let mut response = responding.map_err(|_| ApiError::ProgramTimeout)?.map_err(ApiError::Program)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS && client.is_none() {
        return Err(ApiError::ProgramProtocol);
    }

    let upgrade = response.headers().get(header::UPGRADE).cloned();
    headers::from_program(response.headers_mut(), target.port, scheme, host);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = client
    {
        let program = hyper::upgrade::on(&mut response);
        spawn_until_shutdown(state, copy_upgraded(client, program));
        set_upgrade(response.headers_mut(), upgrade);
    }
    Ok(response.map(Body::new))
}

fn spawn_until_shutdown(state: &ServerState, work: impl Future<Output = ()> + Send + 'static) {
    let shutdown = state.streams.clone().cancelled_owned();
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown => {}
            () = work => {}
        }
    });
}

/// Sets the headers of a change of the protocol, if there is one.
fn set_upgrade(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

/// Copies in both directions until one side ends.
async fn copy_upgraded(client: hyper::upgrade::OnUpgrade, program: hyper::upgrade::OnUpgrade) {
    // Either side may close the connection at any time.
    if let (Ok(client), Ok(program)) = tokio::join!(client, program) {
        let _ = copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(program)).await;
    }
}
