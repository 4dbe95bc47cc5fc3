//! The audit log of the server: changes, sign-ins, and failed attempts to authenticate.
//!
//! An entry is stored before the response is sent. If the client is gone before there is one, the
//! entry says so: the change may have been made. An entry that cannot be stored is kept, and
//! further changes are refused until it is.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use accounts::{AccountError, AuditActor, AuditEntry, AuditStore, Caller, MAX_AUDIT_ENTRIES};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{Extensions, Method, StatusCode};
use protocol::ConversationId;
use tokio::sync::Semaphore;

use crate::client_address::Client;
use crate::error::ApiError;
use crate::extract::parse_id;
use crate::other_hosts::OtherHostResponse;
use crate::state::ServerState;
use crate::{mcp_endpoint, socket_io};

/// Maximum number of entries in memory. More changes than that are not made at once.
const MAX_UNWRITTEN_ENTRIES: usize = 1000;

/// Status of an entry whose client was gone before the response.
const CLIENT_GONE: u16 = 499;

/// The conversation that a request has created, or names in its body. An extension of responses.
#[derive(Clone)]
pub(crate) struct RequestConversation(pub(crate) ConversationId);

/// The caller of a request, once it is known, for the entry of a request whose client is gone. An
/// extension of requests.
#[derive(Clone, Default)]
pub(crate) struct KnownCaller(Arc<OnceLock<Caller>>);

impl KnownCaller {
    /// Notes the caller of a request that may be audited.
    pub(crate) fn note(extensions: &Extensions, caller: &Caller) {
        if let Some(Self(known)) = extensions.get() {
            // Later layers find the same caller.
            let _ = known.set(caller.clone());
        }
    }
}

/// A wrong key was sent. An extension of responses.
#[derive(Clone)]
pub(crate) struct WrongKey;

/// Appends entries.
#[derive(Clone)]
pub(crate) struct AuditLog {
    store: Arc<dyn AuditStore>,
    /// Entries of changes that were being made when the store failed.
    unwritten: Arc<Mutex<Vec<AuditEntry>>>,
    /// Held while they are stored.
    catching_up: Arc<Semaphore>,
}

impl AuditLog {
    pub(crate) fn new(store: Arc<dyn AuditStore>) -> Self {
        Self {
            store,
            unwritten: Arc::default(),
            catching_up: Arc::new(Semaphore::new(1)),
        }
    }

    /// Appends an entry, in a task: the change is made, whether or not its client still waits.
    pub(crate) async fn append(&self, entry: AuditEntry) {
        let log = self.clone();
        // Fails if the task has panicked, which is logged.
        let _ = tokio::spawn(async move { log.append_or_keep(entry).await }).await;
    }

    /// Appends an entry. One that cannot be stored is kept, and logged, because it would not
    /// survive the server.
    async fn append_or_keep(&self, entry: AuditEntry) {
        if let Err(error) = self.store.append(&entry, MAX_AUDIT_ENTRIES).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                ?entry,
                "cannot append to the audit log"
            );
            let mut unwritten = self.unwritten();
            if unwritten.len() < MAX_UNWRITTEN_ENTRIES {
                unwritten.push(entry);
            }
        }
    }

    /// Stores the entries that could not be stored. Must succeed before a change.
    ///
    /// # Errors
    /// The store still fails, or another change waits for it.
    pub(crate) async fn catch_up(&self) -> Result<(), ApiError> {
        if self.unwritten().is_empty() {
            return Ok(());
        }
        // In a task, so that entries that are stored are forgotten in any case.
        let log = self.clone();
        tokio::spawn(async move { log.store_unwritten().await })
            .await
            .unwrap_or(Err(ApiError::StoreUnavailable))
    }

    async fn store_unwritten(&self) -> Result<(), ApiError> {
        // In an outage, an attempt takes as long as the retries of the store do, and changes would
        // wait for each other.
        let permit = self.catching_up.try_acquire();
        let Ok(_permit) = permit else {
            return Err(ApiError::StoreUnavailable);
        };
        let entries = self.unwritten().clone();
        self.store
            .append_all(&entries, MAX_AUDIT_ENTRIES)
            .await
            .map_err(AccountError::from)?;
        self.unwritten().drain(..entries.len());
        Ok(())
    }

    fn unwritten(&self) -> MutexGuard<'_, Vec<AuditEntry>> {
        self.unwritten
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an entry about an action of a socket, with its event in socket.io.
    pub(crate) async fn append_action(
        &self,
        caller: &Caller,
        client: Option<Client>,
        event: &str,
        (conversation, status): (&ConversationId, StatusCode),
    ) {
        let action = format!("socket {event}");
        let pending = self.pending(caller, client, action, Some(conversation.clone()));
        pending.complete(None, status).await;
    }

    /// Appends an entry about a wrong key in a request to a port. Its path belongs to the program.
    pub(crate) async fn append_wrong_port_key(
        &self,
        client: Option<Client>,
        method: &Method,
        conversation: &ConversationId,
    ) {
        let entry = AuditEntry {
            at_ms: accounts::unix_now_ms(),
            actor: AuditActor::Unknown,
            address: client.map(|client| client.address),
            action: format!("{method} port"),
            conversation: Some(conversation.clone()),
            status: Some(StatusCode::UNAUTHORIZED.as_u16()),
        };
        self.append(entry).await;
    }

    /// Returns an entry about an action that is about to start.
    pub(crate) fn pending(
        &self,
        caller: &Caller,
        client: Option<Client>,
        action: String,
        conversation: Option<ConversationId>,
    ) -> PendingEntry {
        let entry = AuditEntry {
            at_ms: accounts::unix_now_ms(),
            actor: AuditActor::from(Some(caller)),
            address: client.map(|client| client.address),
            action,
            conversation,
            status: None,
        };
        PendingEntry {
            entry: Some(entry),
            caller: KnownCaller::default(),
            log: self.clone(),
        }
    }
}

/// An entry that is appended even if the request is cancelled.
pub(crate) struct PendingEntry {
    entry: Option<AuditEntry>,
    /// The actor of an entry that was created before the caller was known.
    caller: KnownCaller,
    log: AuditLog,
}

impl PendingEntry {
    /// Appends the entry with the result of the action, and the conversation that it has created.
    pub(crate) async fn complete(mut self, created: Option<ConversationId>, status: StatusCode) {
        if let Some(entry) = self.entry.take() {
            let conversation = entry.conversation.clone().or(created);
            self.log
                .append(AuditEntry {
                    conversation,
                    status: Some(status.as_u16()),
                    ..entry
                })
                .await;
        }
    }

    /// Appends nothing: the action is recorded elsewhere.
    pub(crate) fn cancel(mut self) {
        self.entry = None;
    }
}

impl Drop for PendingEntry {
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            entry.status = Some(CLIENT_GONE);
            if let Some(caller) = self.caller.0.get() {
                entry.actor = AuditActor::from(Some(caller));
            }
            let log = self.log.clone();
            tokio::spawn(async move { log.append(entry).await });
        }
    }
}

/// Appends an entry about each request that changes something, signs in or out, or has a wrong key.
/// The requests of sockets and of the MCP endpoint are none: their actions have entries of their
/// own. Requests to ports do not get here.
pub(crate) async fn record(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let has_own_entries = path.starts_with(socket_io::PATH) || path == mcp_endpoint::PATH;
    let is_change = !request.method().is_safe() && !has_own_entries;
    if is_change && let Err(error) = state.audit.catch_up().await {
        return error.into_response();
    }
    let entry = to_entry(&request);
    let caller = KnownCaller::default();
    request.extensions_mut().insert(caller.clone());
    let mut pending = PendingEntry {
        entry: is_change.then(|| entry.clone()),
        caller,
        log: state.audit.clone(),
    };
    let response = next.run(request).await;
    pending.entry = None;
    let extensions = response.extensions();
    // Another host has recorded what it has done.
    let is_recorded = extensions.get::<OtherHostResponse>().is_some();
    if !is_recorded && (is_change || extensions.get::<WrongKey>().is_some()) {
        let other = extensions.get().map(|RequestConversation(id)| id.clone());
        let entry = AuditEntry {
            actor: AuditActor::from(extensions.get::<Caller>()),
            conversation: entry.conversation.clone().or(other),
            status: Some(response.status().as_u16()),
            ..entry
        };
        pending.log.append(entry).await;
    }
    response
}

/// Returns the entry of a request, without its result. Of the path, it has only the pattern and the
/// conversation.
fn to_entry(request: &Request) -> AuditEntry {
    let pattern = request
        .extensions()
        .get::<MatchedPath>()
        .map(MatchedPath::as_str);
    let conversation = pattern.and_then(|pattern| find_conversation(pattern, request.uri().path()));
    // The path of an unknown route may be anything, and long.
    let route = pattern.unwrap_or(if request.uri().path().starts_with(socket_io::PATH) {
        socket_io::PATH
    } else {
        "-"
    });
    AuditEntry {
        at_ms: accounts::unix_now_ms(),
        actor: AuditActor::Unknown,
        address: Client::find(request.extensions()).map(|client| client.address),
        action: format!("{} {route}", request.method()),
        conversation,
        status: None,
    }
}

/// Returns the conversation in a path: the part at the place that its pattern has behind
/// `conversations`. Compared from the end, because the path may have a prefix that was removed
/// before the routes.
fn find_conversation(pattern: &str, path: &str) -> Option<ConversationId> {
    let parts: Vec<_> = pattern.rsplit('/').collect();
    let at = parts
        .windows(2)
        .position(|pair| pair[0].starts_with('{') && pair[1] == "conversations")?;
    parse_id(path.rsplit('/').nth(at)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversation_is_found_in_the_path_of_its_route() {
        let find = |pattern, path| find_conversation(pattern, path).map(|id| id.to_string());
        assert_eq!(
            find("/api/conversations/{id}", "/api/conversations/a1").as_deref(),
            Some("a1")
        );
        assert_eq!(
            find(
                "/api/conversations/{id}/git/diff",
                "/base/api/conversations/a1/git/diff"
            )
            .as_deref(),
            Some("a1")
        );
        assert_eq!(
            find("/api/conversations/{id}", "/api/conversations/%611").as_deref(),
            Some("a1")
        );
        assert_eq!(find("/api/secrets/{id}", "/api/secrets/a1"), None);
        assert_eq!(
            find("/api/conversations/{id}", "/api/conversations/%2f"),
            None
        );
    }
}
