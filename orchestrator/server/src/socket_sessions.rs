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
use crate::unread::Unread;

/// Maximum size of the response that opens a session: its id and some numbers.
const MAX_OPENING_BYTES: usize = 4 << 10;

/// The response of socketioxide to requests of an unknown session.
const UNKNOWN_SESSION: &str = r#"{"code":"1","message":"Session ID unknown"}"#;

/// The sessions. An entry is removed with its session.
#[derive(Default)]
pub(crate) struct SocketSessions {
    /// By the id of the session. A blocking mutex, because it is never held across an await.
    by_id: Mutex<HashMap<String, Session>>,
}

struct Session {
    /// The credential that has opened it.
    owner: Credential,
    unread: Unread,
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

    /// Returns what the client of a session has not taken, if the credential has opened it.
    fn unread(&self, id: &str, credential: &Credential) -> Option<Unread> {
        let sessions = self.by_id();
        let session = sessions.get(id)?;
        (session.owner == *credential).then(|| session.unread.clone())
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionGuard {
    /// Adds the session.
    fn add(&self, id: &str, session: Session) {
        let OpenedSession { sessions, id: own } = &*self.0;
        if own.set(id.to_owned()).is_ok() {
            sessions.by_id().insert(id.to_owned(), session);
        }
    }
}

impl Drop for OpenedSession {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            self.sessions.by_id().remove(id);
        }
    }
}

/// Answers the requests of a session whose credential is not that which has opened it as if there
/// were no such session. Adds [`Unread`] to the others, and counts what clients poll. When the
/// server shuts down, ends those that wait for packets, and those that clients send next on
/// connections that are still open.
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
    let is_polling =
        request.method() == Method::GET && !request.headers().contains_key(header::UPGRADE);
    if let Some(id) = session_id(request.uri().query().unwrap_or_default()) {
        let Some(unread) = state.socket_sessions.unread(id, &caller.credential) else {
            return unknown_session();
        };
        request.extensions_mut().insert(unread.clone());
        let response = state.streams.run_until_cancelled(next.run(request)).await;
        let response = response.unwrap_or_else(|| StatusCode::SERVICE_UNAVAILABLE.into_response());
        return if is_polling {
            counted(response, &unread).await
        } else {
            response
        };
    }
    let unread = Unread::default();
    request.extensions_mut().insert(unread.clone());
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
        let owner = caller.credential;
        guard.add(&id, Session { owner, unread });
    }
    Response::from_parts(parts, Body::from(body))
}

/// Counts what a client takes of a response, whose body is in memory already.
async fn counted(response: Response, unread: &Unread) -> Response {
    let (parts, body) = response.into_parts();
    match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => Response::from_parts(parts, unread.counted(body)),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
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
        let session = Session {
            owner: Credential::Operator,
            unread: Unread::default(),
        };
        guard.add(&id, session);
        drop(guard);
        let key = Credential::Key("0123456789ab".parse().unwrap());
        let is_owned_by = |credential| sessions.unread("AAAA", credential).is_some();
        assert!(is_owned_by(&Credential::Operator) && !is_owned_by(&key));
        drop(kept);
        assert!(!is_owned_by(&Credential::Operator) && sessions.by_id().is_empty());
    }

    #[test]
    fn session_of_a_query_is_that_of_socketioxide() {
        assert_eq!(session_id("EIO=4&sid=a&sid=b"), Some("a"));
        assert_eq!(session_id("EIO=4&%73id=a&xsid=b"), None);
        assert_eq!(session_id("sid="), Some(""));
    }
}
