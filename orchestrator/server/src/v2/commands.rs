//! Commands of users.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use conversations::check_right;
use http::StatusCode;
use protocol::client_api::CommandReply;
use protocol::{CommandRequest, ConversationId};

use crate::error::ApiError;
use crate::extract::{ConversationPath, JsonBody, RequestCaller};
use crate::state::ServerState;

/// Applies a command to a conversation, and runs the conversation if the command needs that. A
/// command with an `id` is applied once, also if it is sent again. Only the operator grants other
/// limits than the initial ones, and changes which actions require confirmation.
#[utoipa::path(post, path = "/api/v2/conversations/{id}/commands",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = CommandRequest,
    responses((status = 202, description = "Its events are stored", body = CommandReply)))]
pub(crate) async fn apply(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
    JsonBody(request): JsonBody<CommandRequest>,
) -> Result<(StatusCode, Json<CommandReply>), ApiError> {
    check_right(caller.user.as_ref(), &request.command)?;
    let event_id = state.conversations.apply(&id, request).await?;
    Ok((StatusCode::ACCEPTED, Json(CommandReply { event_id })))
}
