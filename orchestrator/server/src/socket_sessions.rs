//! Sessions of socket.io that clients poll. A session has an id in the query of each request, which
//! may be in logs of proxies, so it is no proof of who sends the request: each session belongs to
//! the credential that has opened it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use accounts::{Caller, Credential};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{Method, StatusCode, header};

use crate::socket_io;
use crate::state::ServerState;

/// Maximum size of the response that opens a session: its id and some numbers.
const MAX_OPENING_BYTES: usize = 4 << 10;

/// The response of socketioxide to requests of an unknown session.
const UNKNOWN_SESSION: &str = r#"{"code":"1","message":"Session ID unknown"}"#;

/// The credentials that have opened sessions. An entry is removed with its session.
#[derive(Default)]
pub(crate) struct SocketSessions {
    /// By the id of the session. A blocking mutex, because it is never held across an await.
    owners: Mutex<HashMap<String, Credential>>,
}

/// Removes the entry of a session when it is dropped. An extension of the request that opens the
/// session, which socketioxide keeps until the session ends.
#[derive(Clone)]
struct SessionGuard(Arc<OpenedSession>);

struct OpenedSession {
    sessions: Arc<SocketSessions>,
    /// Unknown until the response.
    id: OnceLock<String>,
}

impl SocketSessions {
    fn guard(self: &Arc<Self>) -> SessionGuard {
        SessionGuard(Arc::new(OpenedSession {
            sessions: Arc::clone(self),
            id: OnceLock::new(),
        }))
    }

    fn is_owned_by(&self, id: &str, credential: &Credential) -> bool {
        self.owners().get(id) == Some(credential)
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Credential>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionGuard {
    /// Makes a credential the owner of the session.
    fn set_owner(&self, id: &str, credential: Credential) {
        let OpenedSession { sessions, id: own } = &*self.0;
        if own.set(id.to_owned()).is_ok() {
            sessions.owners().insert(id.to_owned(), credential);
        }
    }
}

impl Drop for OpenedSession {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            self.sessions.owners().remove(id);
        }
    }
}

/// Answers the requests of a session whose credential is not that which has opened it as if there
/// were no such session. When the server shuts down, ends those that wait for packets, and those
/// that clients send next on connections that are still open.
pub(crate) async fn require_owner(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    if !request.uri().path().starts_with(socket_io::PATH) {
        return next.run(request).await;
    }
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return unknown_session();
    };
    if let Some(id) = session_id(request.uri().query().unwrap_or_default()) {
        let is_own = state.socket_sessions.is_owned_by(id, &caller.credential);
        if !is_own {
            return unknown_session();
        }
        let response = state.streams.run_until_cancelled(next.run(request)).await;
        return response.unwrap_or_else(|| StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    let is_polling =
        request.method() == Method::GET && !request.headers().contains_key(header::UPGRADE);
    if !is_polling {
        return next.run(request).await;
    }
    let guard = state.socket_sessions.guard();
    request.extensions_mut().insert(guard.clone());
    let response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return response;
    }
    let (parts, body) = response.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_OPENING_BYTES).await else {
        return unknown_session();
    };
    if let Some(id) = opened_id(&body) {
        guard.set_owner(&id, caller.credential);
    }
    Response::from_parts(parts, Body::from(body))
}

/// Returns the id of the session that a query names, exactly as socketioxide finds it.
fn session_id(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("sid="))
}

/// Returns the id of the session that a response opens.
fn opened_id(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Opening {
        sid: String,
    }
    // The type of the packet precedes its JSON.
    let opening: Opening = serde_json::from_slice(body.strip_prefix(b"0")?).ok()?;
    Some(opening.sid)
}

fn unknown_session() -> Response {
    (
        StatusCode::BAD_REQUEST,
        [(header::CONTENT_TYPE, "application/json")],
        UNKNOWN_SESSION,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_ends_with_its_session() {
        let sessions = Arc::new(SocketSessions::default());
        let guard = sessions.guard();
        let kept = guard.clone();
        let id =
            opened_id(br#"0{"sid":"AAAA","upgrades":["websocket"],"pingInterval":25000}"#).unwrap();
        guard.set_owner(&id, Credential::Operator);
        drop(guard);
        let key = Credential::Key("0123456789ab".parse().unwrap());
        assert!(
            sessions.is_owned_by("AAAA", &Credential::Operator)
                && !sessions.is_owned_by("AAAA", &key)
        );
        drop(kept);
        assert!(
            !sessions.is_owned_by("AAAA", &Credential::Operator) && sessions.owners().is_empty()
        );
    }

    #[test]
    fn session_of_a_query_is_that_of_socketioxide() {
        assert_eq!(session_id("EIO=4&sid=a&sid=b"), Some("a"));
        assert_eq!(session_id("EIO=4&%73id=a&xsid=b"), None);
        assert_eq!(session_id("sid="), Some(""));
    }
}
