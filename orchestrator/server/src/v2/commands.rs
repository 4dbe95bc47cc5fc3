//! Commands of users.

use std::sync::Arc;

use accounts::Caller;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::client_api::CommandReply;
use protocol::{CommandRequest, ConversationId, UserCommand};

use crate::commands;
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
    check_right(&caller, &request.command)?;
    let event_id = commands::apply(&state, &id, request).await?;
    Ok((StatusCode::ACCEPTED, Json(CommandReply { event_id })))
}

fn check_right(caller: &Caller, command: &UserCommand) -> Result<(), ApiError> {
    let is_for_operator = match command {
        UserCommand::SetConfirmation { .. } => true,
        UserCommand::Resume {
            more_iterations,
            more_budget,
        } => more_iterations.is_some() || more_budget.is_some(),
        UserCommand::SendMessage(_)
        | UserCommand::Stop
        | UserCommand::Pause
        | UserCommand::AwaitMessage
        | UserCommand::RecoverFromLoop { .. }
        | UserCommand::Confirm { .. }
        | UserCommand::Reject { .. }
        | UserCommand::SetTitle { .. }
        | UserCommand::GiveFeedback(_) => false,
    };
    if is_for_operator && caller.user.is_some() {
        return Err(ApiError::NotOperator);
    }
    Ok(())
}
