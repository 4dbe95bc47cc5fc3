//! The key that requests must carry.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, header};
use ring::digest::{Digest, SHA256, digest};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::ApiError;
use crate::state::ServerState;
use crate::{cookies, socket_io};

/// V0's header of the key.
pub(crate) const KEY_HEADER: &str = "x-session-api-key";

/// V0's parameter of the key, for sockets only.
const KEY_PARAMETER: &str = "session_api_key";

/// The server's key. Only its hash is kept, so that a comparison takes the same time for each wrong key.
pub(crate) struct ApiKey(Digest);

impl ApiKey {
    pub(crate) fn new(key: &SecretString) -> Self {
        Self(digest(&SHA256, key.expose_secret().as_bytes()))
    }

    /// Whether a client's key is this one.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        digest(&SHA256, given).as_ref() == self.0.as_ref()
    }

    /// Whether the headers have the key: in V0's header, or as a bearer token.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let bearer = bearer.and_then(|value| value.strip_prefix(b"Bearer "));
        let own = headers.get(KEY_HEADER).map(|value| value.as_bytes());
        own.or(bearer).is_some_and(|given| self.is(given))
    }

    /// Whether the query has the key.
    fn is_in_query(&self, query: &str) -> bool {
        form_urlencoded::parse(query.as_bytes())
            .any(|(name, value)| name == KEY_PARAMETER && self.is(value.as_bytes()))
    }
}

/// Whether a request has the key in its headers, or the session of a browser. With a session, a change must come from a page
/// whose origin is known, which [`require_own_origin`](crate::origin::require_own_origin) has compared.
fn has_key(state: &ServerState, request: &Request) -> bool {
    let headers = request.headers();
    let has_origin = || request.method().is_safe() || headers.contains_key(header::ORIGIN);
    state.key.is_in(headers) || has_origin() && cookies::has_session(&state.signatures, headers)
}

/// Rejects requests without the key.
pub(crate) async fn require_key(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !has_key(&state, &request) {
        return Err(ApiError::NoKey);
    }
    state.record_request();
    Ok(next.run(request).await)
}

/// Rejects requests of sockets without the key, before anything that they send is buffered. Browsers cannot set headers of
/// sockets, so the key may be in the query.
pub(crate) async fn require_socket_key(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let is_socket = request.uri().path().starts_with(socket_io::PATH);
    let query = request.uri().query().unwrap_or_default();
    if is_socket && !state.key.is_in_query(query) && !has_key(&state, &request) {
        return Err(ApiError::NoKey);
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn key_is_accepted_in_either_header_and_only_whole() {
        let key = ApiKey::new(&SecretString::from("secret"));
        let is_in = |name: &'static str, value: &'static str| {
            key.is_in(&HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )]))
        };
        assert!(is_in("x-session-api-key", "secret"));
        assert!(is_in("authorization", "Bearer secret"));
        for (name, value) in [
            ("x-session-api-key", "secre"),
            ("x-session-api-key", "secret1"),
            ("x-session-api-key", ""),
            ("authorization", "secret"),
            ("authorization", "Basic secret"),
            ("cookie", "secret"),
        ] {
            assert!(!is_in(name, value), "{name}: {value}");
        }
        assert!(!key.is_in(&HeaderMap::new()));
        assert!(key.is_in_query("EIO=4&session_api_key=%73ecret"));
        assert!(!key.is_in_query("session_api_key=secret1&key=secret"));
    }
}
