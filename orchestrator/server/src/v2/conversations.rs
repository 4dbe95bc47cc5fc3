//! Conversations: create, list, read, fork and delete.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::{Extension, Json};
use conversations::ConversationRequest;
use http::StatusCode;
use protocol::ConversationId;
use protocol::client_api::v2::{
    ConversationItem, ConversationItemPage, CreateConversation, CreatedConversation,
    ForkConversation, ListConversations,
};

use crate::audit::RequestConversation;
use crate::error::ApiError;
use crate::extract::{
    ConversationPath, JsonBody, QueryParameters, RequestCaller, parse_json, read_body,
};
use crate::state::ServerState;
use crate::work::{WorkPermit, parse_body};

type Created = (
    StatusCode,
    Extension<RequestConversation>,
    Json<CreatedConversation>,
);

/// Creates a conversation. A request with an `id` that is sent again returns the same conversation.
#[utoipa::path(post, path = "/api/v2/conversations",
    request_body = CreateConversation,
    responses((status = 201, description = "Its first message is stored", body = CreatedConversation)))]
pub(crate) async fn create(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    request: Request,
) -> Result<Created, ApiError> {
    let (_, body) = read_body(request).await?;
    let request = parse_body(&state, body, parse_json).await?;
    let request = ConversationRequest::new(caller.user, request);
    Ok(created(state.conversations.create(request).await?))
}

fn created(id: ConversationId) -> Created {
    (
        StatusCode::CREATED,
        Extension(RequestConversation(id.clone())),
        Json(CreatedConversation { id }),
    )
}

/// Lists the conversations of a user, or all for the operator, the latest first.
#[utoipa::path(get, path = "/api/v2/conversations",
    params(ListConversations),
    responses((status = 200, description = "A page", body = ConversationItemPage)))]
pub(crate) async fn list(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    QueryParameters(request): QueryParameters<ListConversations>,
) -> Result<Json<ConversationItemPage>, ApiError> {
    let page = state.conversations.list(caller.user.as_ref(), request);
    Ok(Json(page.await?))
}

/// Returns a conversation.
#[utoipa::path(get, path = "/api/v2/conversations/{id}",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The conversation", body = ConversationItem)))]
pub(crate) async fn find(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<ConversationItem>, ApiError> {
    let item = state.conversations.item(caller.user.as_ref(), &id);
    Ok(Json(item.await?))
}

/// Stops a conversation, and deletes it with its sandbox and its own workspace.
#[utoipa::path(delete, path = "/api/v2/conversations/{id}",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 204, description = "It is deleted")))]
pub(crate) async fn delete(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<StatusCode, ApiError> {
    let permit = WorkPermit::for_deletion(&state, &caller).await;
    let deleting = async move { Ok(state.conversations.delete(&id).await?) };
    permit.run(deleting).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Creates a paused conversation that shares the events of another one up to `last_event`, or all
/// of them. It has no sandbox yet, and a copy of the other one's own workspace. A request with an
/// `id` that is sent again returns the same conversation.
#[utoipa::path(post, path = "/api/v2/conversations/{id}/fork",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = ForkConversation,
    responses((status = 201, description = "It is stored", body = CreatedConversation)))]
pub(crate) async fn fork(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    permit: WorkPermit,
    JsonBody(request): JsonBody<ForkConversation>,
) -> Result<Created, ApiError> {
    let forking = async move { Ok(state.conversations.fork(&id, request).await?) };
    Ok(created(permit.run(forking).await?))
}
