//! Who sent a request: the caller with its key, or with the session of its browser.

use std::sync::Arc;

use accounts::Caller;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, header};

use crate::audit::KnownCaller;
use crate::client_address::Client;
use crate::error::ApiError;
use crate::input_memory::BodyMemory;
use crate::state::ServerState;
use crate::{cookies, socket_io};

/// V0's header of the key.
pub(crate) const KEY_HEADER: &str = "x-session-api-key";

/// V0's parameter of the key, for sockets only.
const KEY_PARAMETER: &str = "session_api_key";

/// Maximum size of a rejected request's body that is read.
const MAX_DRAINED_BYTES: usize = 64 << 10;

/// The scheme of a bearer token, in any case.
const BEARER: &[u8] = b"bearer";

/// Returns the key in the headers: in V0's header, else the bearer token.
pub(crate) fn key_in(headers: &HeaderMap) -> Option<&[u8]> {
    headers
        .get(KEY_HEADER)
        .map(|value| value.as_bytes())
        .or_else(|| bearer_tokens(headers).next())
}

/// Returns the bearer tokens in the headers, of which a client should send one.
pub(crate) fn bearer_tokens(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers
        .get_all(header::AUTHORIZATION)
        .iter()
        .filter_map(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(BEARER.len())?;
            let is_token = scheme.eq_ignore_ascii_case(BEARER)
                && token.first().is_some_and(u8::is_ascii_whitespace);
            is_token.then(|| token.trim_ascii())
        })
}

/// Returns the key in the query of a socket.
fn key_in_query(query: &str) -> Option<Vec<u8>> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(name, _)| name == KEY_PARAMETER)
        .map(|(_, key)| key.into_owned().into_bytes())
}

/// Finds the caller with the key in the headers, whatever session the request has. Without one,
/// with the session: a change must then come from a page whose origin is known, which
/// [`require_own_origin`](crate::origin::require_own_origin) has compared. Else with the key in the
/// query, for which V0's page sends `null` if it has none.
///
/// # Errors
/// [`ApiError::NoKey`] or [`ApiError::WrongKey`] if there is none; [`ApiError::TooManyWrongKeys`];
/// [`ApiError::Account`].
async fn find_caller(
    state: &ServerState,
    client: Option<Client>,
    method: &Method,
    headers: &HeaderMap,
    query_key: Option<Vec<u8>>,
) -> Result<Caller, ApiError> {
    if let Some(key) = key_in(headers) {
        return check_key(state, client, key).await;
    }
    if (method.is_safe() || headers.contains_key(header::ORIGIN))
        && let Some(caller) = find_session(state, client, headers).await?
    {
        return Ok(caller);
    }
    check_key(state, client, &query_key.ok_or(ApiError::NoKey)?).await
}

/// Returns the caller with a key, unless the client has sent too many wrong ones.
///
/// # Errors
/// [`ApiError::WrongKey`], [`ApiError::TooManyWrongKeys`] or [`ApiError::Account`].
pub(crate) async fn check_key(
    state: &ServerState,
    client: Option<Client>,
    key: &[u8],
) -> Result<Caller, ApiError> {
    // Before the key is compared, so that the answer does not tell whether it is the right one.
    if let Some(wait) = client.and_then(|client| state.failed_attempts.wait_time(client.address)) {
        return Err(ApiError::TooManyWrongKeys(wait));
    }
    if let Some(caller) = state.authenticator.with_key(key).await? {
        return Ok(caller);
    }
    client
        .into_iter()
        .for_each(|client| state.failed_attempts.record(client.address));
    Err(ApiError::WrongKey)
}

/// Finds the caller with the session of a request. `None` if it has sessions of several users, or
/// too many tokens to check: a page of a sibling domain can set the cookie of its author, and the
/// browser's user would work as that one.
pub(crate) async fn find_session(
    state: &ServerState,
    client: Option<Client>,
    headers: &HeaderMap,
) -> Result<Option<Caller>, ApiError> {
    let is_tls = client.is_some_and(|client| client.is_tls);
    let tokens = cookies::session_tokens(headers, is_tls, &state.base_path);
    if tokens.len() > cookies::MAX_TOKENS {
        return Ok(None);
    }
    let mut callers = Vec::new();
    for token in tokens {
        callers.extend(state.authenticator.with_session(token.as_bytes()).await?);
    }
    let are_of_one_user = callers
        .iter()
        .all(|caller: &Caller| caller.user == callers[0].user);
    Ok(callers.into_iter().next().filter(|_| are_of_one_user))
}

/// Rejects requests without a valid key or session, and changes by a caller who may only read. Adds
/// the [`Caller`] to the extensions of the others, and to those of responses for the audit log.
pub(crate) async fn require_key(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (caller, request) = authenticate(&state, request, None).await?;
    if !request.method().is_safe()
        && let Err(error) = require_write(&caller)
    {
        drain(request).await;
        let mut response = error.into_response();
        response.extensions_mut().insert(caller);
        return Ok(response);
    }
    Ok(run_as(&state, caller, request, next).await)
}

/// As [`require_key`], for a route that checks by itself what its caller may change.
pub(crate) async fn require_any_key(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (caller, request) = authenticate(&state, request, None).await?;
    Ok(run_as(&state, caller, request, next).await)
}

/// Finds the caller of a request.
async fn authenticate(
    state: &ServerState,
    request: Request,
    query_key: Option<Vec<u8>>,
) -> Result<(Caller, Request), ApiError> {
    let (client, method) = (Client::find(request.extensions()), request.method().clone());
    match find_caller(state, client, &method, request.headers(), query_key).await {
        Ok(caller) => {
            KnownCaller::note(request.extensions(), &caller);
            Ok((caller, request))
        }
        Err(error) => {
            drain(request).await;
            Err(error)
        }
    }
}

/// Reads the body of a rejected request, if it is small. The connection of an unread body is
/// closed, possibly while the client sends its next request.
async fn drain(request: Request) {
    let mut frames = request.into_body().into_data_stream();
    let mut count = 0;
    while count <= MAX_DRAINED_BYTES
        && let Some(Ok(frame)) = frames.next().await
    {
        count += frame.len();
    }
}

/// Runs a request as a caller, whose memory has room for its body until there is a response.
async fn run_as(
    state: &Arc<ServerState>,
    caller: Caller,
    mut request: Request,
    next: Next,
) -> Response {
    state.record_request();
    let memory = BodyMemory::new(Arc::clone(&state.input_memory), caller.user.clone());
    request.extensions_mut().insert(memory.clone());
    request.extensions_mut().insert(caller.clone());
    let response = next.run(request).await;
    drop(memory);
    let mut response = end_when_revoked(state, &caller, response);
    response.extensions_mut().insert(caller);
    response
}

/// Cuts off a response that is still being made when its key is revoked: without the end of its
/// body, so that it does not look complete. Streams of events end by themselves, with the reason.
fn end_when_revoked(state: &Arc<ServerState>, caller: &Caller, response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_event_stream =
        kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if is_event_stream || response.body().size_hint().exact().is_some() {
        return response;
    }
    let (state, caller) = (Arc::clone(state), caller.clone());
    let revoked = Box::pin(async move { state.until_revoked(&caller).await });
    response.map(|body| {
        let parts = body.into_data_stream();
        Body::from_stream(stream::unfold(Some((parts, revoked)), async |open| {
            let (mut parts, mut revoked) = open?;
            tokio::select! {
                biased;
                () = &mut revoked => Some((Err(axum::Error::new(ApiError::NoKey)), None)),
                part = parts.next() => part.map(|part| (part, Some((parts, revoked)))),
            }
        }))
    })
}

/// Rejects a caller who may only read.
pub(crate) fn require_write(caller: &Caller) -> Result<(), ApiError> {
    if caller.can_write() {
        Ok(())
    } else {
        Err(ApiError::ReadOnlyKey)
    }
}

/// Rejects requests of sockets without a valid key or session, before anything that they send is
/// buffered. Browsers cannot set headers of sockets, so the key may be in the query.
pub(crate) async fn require_socket_key(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.uri().path().starts_with(socket_io::PATH) {
        let query_key = key_in_query(request.uri().query().unwrap_or_default());
        let (caller, authenticated) = authenticate(&state, request, query_key).await?;
        request = authenticated;
        let memory = BodyMemory::new(Arc::clone(&state.input_memory), caller.user.clone());
        request.extensions_mut().insert(memory.clone());
        request.extensions_mut().insert(caller);
        let response = next.run(request).await;
        drop(memory);
        return Ok(response);
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn key_is_found_in_either_header_and_in_any_case_of_bearer() {
        let key = |name: &'static str, value: &'static str| {
            let headers = HeaderMap::from_iter([(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]);
            key_in(&headers).map(<[u8]>::to_vec)
        };
        for (name, value) in [
            ("x-session-api-key", "secret"),
            ("authorization", "Bearer secret"),
            ("authorization", "bearer secret"),
            ("authorization", "BEARER  secret"),
            ("authorization", "Bearer\tsecret"),
        ] {
            assert_eq!(
                key(name, value).as_deref(),
                Some(b"secret".as_slice()),
                "{name}: {value}"
            );
        }
        for (name, value) in [
            ("authorization", "secret"),
            ("authorization", "Basic secret"),
            ("authorization", "Bearersecret"),
            ("authorization", "Bearer"),
            ("cookie", "secret"),
        ] {
            assert_eq!(key(name, value), None, "{name}: {value}");
        }
    }

    #[test]
    fn bearer_tokens_of_all_headers_are_found() {
        let values = ["Bearer one", "Basic two", "bearer\tthree"];
        let headers = values
            .iter()
            .map(|value| (header::AUTHORIZATION, HeaderValue::from_static(value)))
            .collect();
        assert_eq!(
            bearer_tokens(&headers).collect::<Vec<_>>(),
            [b"one".as_slice(), b"three"]
        );
    }

    #[test]
    fn key_of_a_socket_is_found_in_its_query() {
        assert_eq!(
            key_in_query("EIO=4&session_api_key=%73ecret"),
            Some(b"secret".to_vec())
        );
        assert_eq!(key_in_query("key=secret"), None);
    }
}
