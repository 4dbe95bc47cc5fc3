//! Programs in sandboxes that listen on a port, each at a host name and thus an origin of its own,
//! so that nothing of a sandbox is ever served on the origin of the API.
//!
//! Not `axum-reverse-proxy`: it connects to addresses, and a sandbox is reached over a stream.

mod access;
mod headers;
mod host;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use accounts::{Caller, Credential};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use conversations::ConversationsError;
use cookie::Cookie;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use protocol::ConversationId;
use tokio::time::timeout;

use crate::client_address::Client;
use crate::error::ApiError;
use crate::proxy::{self, Upgrade};
use crate::state::ServerState;
use crate::{auth, origin, other_hosts};
use access::PortAccess;
pub use host::PortHosts;
use host::SandboxPort;

/// Time for a program to start its response. Long, because a page may wait for news with a request.
const HEAD_TIMEOUT: Duration = Duration::from_mins(5);

/// Time to connect to a program before the answer to a page is that none listens.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for a program to answer such a page. Longer, because a program that serves one request at a
/// time, or compiles, still is the one that the page shows.
const PROBE_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves requests to host names of ports, and passes on all others.
pub(crate) async fn serve(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let host = origin::host(request.uri(), request.headers());
    let target = host
        .as_ref()
        .and_then(|host| Some((state.port_hosts.find(host)?, host.clone())));
    let Some((target, host)) = target else {
        return next.run(request).await;
    };
    let served = async {
        if !origin::is_same_origin(&request, &host) {
            return answer_other_page(&state, &target, request).await;
        }
        let client = Client::find(request.extensions());
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let admitted = admit(&state, client, &target, (method, uri, headers)).await;
        if let Err(ApiError::WrongKey) = admitted {
            state
                .audit
                .append_wrong_port_key(client, request.method(), &target.conversation)
                .await;
            // As for a key whose caller may not see the conversation.
            return Err(ApiError::NoPortCookie);
        }
        match admitted? {
            Admission::Forward(caller) => {
                request.extensions_mut().insert(caller.clone());
                match other_hosts::forward_to_holder(&state, &target.conversation, request).await {
                    Ok(response) => Ok(response),
                    Err(request) => forward(&state, caller, &target, &host, request).await,
                }
            }
            Admission::Redirect { cookie, path } => {
                let headers = [
                    (header::SET_COOKIE, cookie.to_string()),
                    (header::LOCATION, path),
                ];
                Ok((StatusCode::SEE_OTHER, headers).into_response())
            }
        }
    };
    served.await.unwrap_or_else(ApiError::into_response)
}

/// Tells a page of another origin whether a program answers at its link, which V0's page asks again
/// and again before and while it shows the link in a frame. The page learns and gets nothing else.
async fn answer_other_page(
    state: &ServerState,
    target: &SandboxPort,
    mut request: Request,
) -> Result<Response, ApiError> {
    let access = PortAccess {
        signatures: &state.signatures,
        target,
    };
    let origin = request
        .headers()
        .get(header::ORIGIN)
        .filter(|_| request.method() == Method::GET)
        .cloned();
    let (Some(origin), Some(credential)) = (origin, access.accept_probe(request.uri())) else {
        return Err(ApiError::ForeignOrigin);
    };
    let caller = require_access(state, &credential, target).await?;
    request.extensions_mut().insert(caller);
    let mut response =
        match other_hosts::forward_to_holder(state, &target.conversation, request).await {
            Ok(response) => response,
            Err(_) => probe(state, target)
                .await
                .map_or_else(ApiError::into_response, |()| {
                    StatusCode::NO_CONTENT.into_response()
                }),
        };
    response
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Origin"));
    Ok(response)
}

/// Checks that a program answers in HTTP: the page shows the first link that works, and databases
/// listen too.
async fn probe(state: &ServerState, target: &SandboxPort) -> Result<(), ApiError> {
    let conversations = state.conversations.conversations();
    let connecting = conversations.connect_port(&target.conversation, target.port);
    let connected = timeout(PROBE_TIMEOUT, connecting).await;
    let stream = connected.map_err(|_| ApiError::ProgramTimeout)??;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(ApiError::Program)?;
    let request = http::Request::get("/")
        .header(header::HOST, format!("localhost:{}", target.port))
        .body(Body::empty())
        .map_err(|error| ApiError::invalid("port", error))?;
    let mut answer = pin!(sender.send_request(request));
    let answering = async {
        tokio::select! {
            answered = &mut answer => answered,
            // The connection passes on an answer when it ends.
            _ = connection => answer.await,
        }
    };
    let answered = timeout(PROBE_ANSWER_TIMEOUT, answering).await;
    answered
        .map_err(|_| ApiError::ProgramTimeout)?
        .map(drop)
        .map_err(ApiError::Program)
}

/// Returns a link to a port of a conversation's sandbox, which is valid for one to two hours, and
/// as long as the key or the session of the caller. `None` if the id of the conversation cannot be
/// in a host name.
pub(crate) fn link(
    state: &ServerState,
    caller: &Caller,
    conversation: &ConversationId,
    port: u16,
) -> Option<String> {
    let target = SandboxPort {
        conversation: conversation.clone(),
        port,
    };
    let access = PortAccess {
        signatures: &state.signatures,
        target: &target,
    };
    access.link(&state.port_hosts, &caller.credential)
}

/// What to do with a request to a port.
enum Admission {
    Forward(Caller),
    /// A link with a token leads to the same address with a cookie instead.
    Redirect {
        cookie: Cookie<'static>,
        path: String,
    },
}

/// Decides whether a request of the port's own origin, or of a link, may reach the port.
///
/// # Errors
/// [`ApiError::NoPortCookie`], [`ApiError::WrongKey`], [`ApiError::TooManyWrongKeys`], or an error
/// of the store.
async fn admit(
    state: &ServerState,
    client: Option<Client>,
    target: &SandboxPort,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
) -> Result<Admission, ApiError> {
    let access = PortAccess {
        signatures: &state.signatures,
        target,
    };
    if let Some((path, credential)) = access.accept_token(uri) {
        require_access(state, &credential, target).await?;
        return Ok(Admission::Redirect {
            cookie: access.cookie(&state.port_hosts, &credential),
            path,
        });
    }
    // Before the key, because a bearer token may be for the program.
    if let Some(credential) = access.accept_cookie(headers) {
        let caller = require_access(state, &credential, target).await?;
        // A page of the program must not find a token in its address, not even an expired one.
        // Other methods are forwarded as they are: a redirect would lose their bodies.
        return Ok(match access::split_tokens(uri) {
            Some((_, path)) if method.is_safe() => Admission::Redirect {
                cookie: access.cookie(&state.port_hosts, &credential),
                path,
            },
            _ => Admission::Forward(caller),
        });
    }
    // A page has the cookie. One of the program could send wrong keys, and thus lock its visitor's
    // address out.
    let key = auth::key_in(headers)
        .filter(|_| !origin::is_from_page(headers))
        .ok_or(ApiError::NoPortCookie)?;
    let credential = auth::check_key(state, client, key).await?.credential;
    require_access(state, &credential, target)
        .await
        .map(Admission::Forward)
}

/// Returns the caller with a credential that was valid earlier, if the caller may still reach the
/// port. All errors are the same, so that none tells whether another user has such a conversation.
async fn require_access(
    state: &ServerState,
    credential: &Credential,
    target: &SandboxPort,
) -> Result<Caller, ApiError> {
    let caller = state.authenticator.with_credential(credential).await?;
    let caller = caller
        .filter(Caller::can_write)
        .ok_or(ApiError::NoPortCookie)?;
    match state.authorize(&caller, &target.conversation).await {
        Err(ApiError::Conversations(ConversationsError::Unknown(_))) => Err(ApiError::NoPortCookie),
        authorized => authorized.map(|()| caller),
    }
}

/// Forwards a request, on a connection of its own.
async fn forward(
    state: &Arc<ServerState>,
    caller: Caller,
    target: &SandboxPort,
    host: &Authority,
    mut request: Request,
) -> Result<Response, ApiError> {
    let mut has_own_token = false;
    for token in auth::bearer_tokens(request.headers()) {
        has_own_token |= state.authenticator.with_key(token).await?.is_some();
    }
    let conversations = state.conversations.conversations();
    let stream = conversations
        .connect_port(&target.conversation, target.port)
        .await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(ApiError::Program)?;
    // Ends with the response, or when the client is gone.
    spawn_until_revoked(state, &caller, async move {
        drop(connection.with_upgrades().await);
    });

    let scheme = state.port_hosts.scheme();
    let upgrade = Upgrade::take(&mut request);
    headers::to_program(
        request.headers_mut(),
        target.port,
        scheme,
        host,
        has_own_token,
    );
    if let Some(upgrade) = &upgrade {
        upgrade.set(request.headers_mut());
    }
    let path = request
        .uri()
        .path_and_query()
        .cloned()
        .unwrap_or(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    *request.version_mut() = Version::HTTP_11;
    let responding = timeout(HEAD_TIMEOUT, sender.send_request(request)).await;
    let mut response = responding
        .map_err(|_| ApiError::ProgramTimeout)?
        .map_err(ApiError::Program)?;
    let protocol = response.headers().get(header::UPGRADE).cloned();
    headers::from_program(response.headers_mut(), target.port, scheme, host);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let (Some(upgrade), Some(protocol)) = (upgrade, protocol) else {
            return Err(ApiError::ProgramProtocol);
        };
        let program = hyper::upgrade::on(&mut response);
        let program = async move { program.await.ok().map(TokioIo::new) };
        spawn_until_revoked(state, &caller, upgrade.copy(program));
        proxy::set_protocol(response.headers_mut(), protocol);
    }
    Ok(response.map(Body::new))
}

/// Runs until the work ends, the server shuts down, or the key or the session of the caller is no
/// longer valid.
fn spawn_until_revoked(
    state: &Arc<ServerState>,
    caller: &Caller,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let (state, caller) = (Arc::clone(state), caller.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = state.streams.cancelled() => {}
            () = state.until_revoked(&caller) => {}
            () = work => {}
        }
    });
}
