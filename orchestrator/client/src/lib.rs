//! Conversations of a server, over its API: [`RemoteConversations`] is the
//! [`ConversationService`] of the key's user, the
//! [`WorkspaceService`](conversations::WorkspaceService), the
//! [`SandboxService`](conversations::SandboxService) and the
//! [`ProfileService`](conversations::ProfileService).
//!
//! This is the one layer that repeats requests. A request that the server may have received is
//! repeated only if that is safe: a new conversation, a fork and a command have ids, and are
//! created and applied once. A server that was never reached is reported without delay. A stream
//! reconnects and continues after the last event that it has returned.
//!
//! Knows no code of the server.

mod connection;
mod error;
mod follow;
mod profile;
mod retry;
mod sandbox;
mod workspace;

use std::sync::Arc;

use async_trait::async_trait;
use conversations::{ConversationService, ServiceError, Updates};
use http::Method;
use protocol::client_api::CommandReply;
use protocol::client_api::v2::{
    ConversationItem, ConversationItemPage, CreateConversation, CreatedConversation,
    ExportConversation, ForkConversation, ListConversations,
};
use protocol::event_query::SelectedEventPage;
use protocol::{CommandId, CommandRequest, ConversationId, Event, EventId, EventQuery};
use rustls::RootCertStore;
use secrecy::SecretString;
use uuid::Uuid;

use connection::{ApiRequest, Connection, Repetition};

pub use connection::normalize_address;
pub use error::AddressError;

/// Maximum length of a trajectory, in bytes. It is in the memory of the client.
const MAX_TRAJECTORY_BYTES: usize = 1 << 30;

/// The conversations that a key of a server gives access to.
pub struct RemoteConversations(Arc<Connection>);

impl RemoteConversations {
    /// Creates the client of a server. Connects with the first request.
    ///
    /// # Errors
    /// [`AddressError`] if `url` is not the address of a server, or the key cannot be sent.
    pub fn new(url: &str, key: &SecretString, roots: RootCertStore) -> Result<Self, AddressError> {
        Ok(Self(Arc::new(Connection::new(url, key, roots)?)))
    }

    /// Whether the server has responded to a request.
    pub fn was_reached(&self) -> bool {
        self.0.was_reached()
    }
}

#[async_trait]
impl ConversationService for RemoteConversations {
    async fn create(&self, request: CreateConversation) -> Result<ConversationId, ServiceError> {
        let request = CreateConversation {
            id: request.id.or_else(|| new_id().parse().ok()),
            ..request
        };
        let created =
            ApiRequest::new(Method::POST, "/conversations", Repetition::Safe).with_body(&request);
        let CreatedConversation { id } = self.0.send(created).await?;
        Ok(id)
    }

    async fn list(&self, request: ListConversations) -> Result<ConversationItemPage, ServiceError> {
        let list =
            ApiRequest::new(Method::GET, "/conversations", Repetition::Safe).with_query(&request);
        self.0.send(list).await
    }

    async fn get(&self, id: &ConversationId) -> Result<ConversationItem, ServiceError> {
        let get = ApiRequest::of_conversation(Method::GET, id, "");
        self.0.send(get).await
    }

    async fn delete(&self, id: &ConversationId) -> Result<(), ServiceError> {
        let delete = ApiRequest::of_conversation(Method::DELETE, id, "");
        self.0.remove(delete).await
    }

    async fn fork(
        &self,
        id: &ConversationId,
        request: ForkConversation,
    ) -> Result<ConversationId, ServiceError> {
        let request = ForkConversation {
            id: request.id.or_else(|| new_id().parse().ok()),
            ..request
        };
        let fork = ApiRequest::of_conversation(Method::POST, id, "/fork").with_body(&request);
        let CreatedConversation { id } = self.0.send(fork).await?;
        Ok(id)
    }

    async fn apply(
        &self,
        id: &ConversationId,
        request: CommandRequest,
    ) -> Result<Option<EventId>, ServiceError> {
        let path = format!("/conversations/{id}/commands");
        let (request, repetition) = ensure_command_id(request);
        let apply = ApiRequest::new(Method::POST, &path, repetition).with_body(&request);
        let CommandReply { event_id } = self.0.send(apply).await?;
        Ok(event_id)
    }

    async fn events(
        &self,
        id: &ConversationId,
        query: EventQuery,
    ) -> Result<SelectedEventPage, ServiceError> {
        let page = ApiRequest::of_conversation(Method::GET, id, "/events").with_query(&query);
        self.0.send(page).await
    }

    async fn export(
        &self,
        id: &ConversationId,
        request: ExportConversation,
    ) -> Result<Vec<Event>, ServiceError> {
        let export = ApiRequest::of_conversation(Method::GET, id, "/trajectory")
            .with_query(&request)
            .with_max_reply_bytes(MAX_TRAJECTORY_BYTES);
        self.0.send(export).await
    }

    async fn follow(
        &self,
        id: &ConversationId,
        after: Option<EventId>,
    ) -> Result<Updates, ServiceError> {
        follow::follow(Arc::clone(&self.0), id.clone(), after).await
    }
}

/// Gives a command an id, so that it can be repeated. A decision that names no action has none:
/// sent again, it would decide the next action.
fn ensure_command_id(request: CommandRequest) -> (CommandRequest, Repetition) {
    use protocol::UserCommand::{Confirm, Reject};
    if request.id.is_some() {
        return (request, Repetition::Safe);
    }
    if let Confirm { action: None, .. } | Reject { action: None, .. } = &request.command {
        return (request, Repetition::IfUnsent);
    }
    let id = CommandId::try_from(new_id()).ok();
    (CommandRequest { id, ..request }, Repetition::Safe)
}

/// Later ids sort after earlier ones.
fn new_id() -> String {
    Uuid::now_v7().simple().to_string()
}
