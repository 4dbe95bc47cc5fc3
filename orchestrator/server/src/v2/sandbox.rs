//! The sandbox of a conversation.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use protocol::ConversationId;
use protocol::client_api::v2::sandbox::{SandboxInfo, SandboxLogs, SandboxPortList, SandboxUsage};

use crate::error::ApiError;
use crate::extract::{ConversationPath, RequestCaller};
use crate::ports;
use crate::state::ServerState;
use crate::work::WorkPermit;

pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v2/conversations/{id}/sandbox", get(find))
        .route("/v2/conversations/{id}/sandbox/usage", get(usage))
        .route("/v2/conversations/{id}/sandbox/ports", get(list_ports))
        .route("/v2/conversations/{id}/sandbox/logs", get(logs))
        .route("/v2/conversations/{id}/sandbox/pause", post(pause))
}

/// Returns the sandbox of a conversation, whether it runs or not.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/sandbox",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The sandbox", body = SandboxInfo)))]
pub(crate) async fn find(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SandboxInfo>, ApiError> {
    let _permit = WorkPermit::acquire(&state, &caller).await?;
    Ok(Json(state.conversations.sandbox_info(&id).await?))
}

/// Measures the sandbox of a running conversation, if its runtime can.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/sandbox/usage",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The usage", body = SandboxUsage)))]
pub(crate) async fn usage(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SandboxUsage>, ApiError> {
    let (_, _permit) = state.workspace_with_permit(&id, &caller).await?;
    let usage = state.conversations.sandbox_usage(&id).await;
    usage.map(Json).map_err(ApiError::from_sandbox)
}

/// Lists the ports on which programs in the sandbox of a running conversation listen. A caller who
/// may only read gets no links, because a request to a program can change what it likes.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/sandbox/ports",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The ports", body = SandboxPortList)))]
pub(crate) async fn list_ports(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SandboxPortList>, ApiError> {
    let (_, _permit) = state.workspace_with_permit(&id, &caller).await?;
    let found = state.conversations.sandbox_ports(&id).await;
    let mut list = found.map_err(ApiError::from_sandbox)?;
    if caller.can_write() {
        for port in &mut list.ports {
            port.link = ports::link(&state, &caller, &id, port.port);
        }
    }
    Ok(Json(list))
}

/// Returns the latest logs of the sandbox of a running conversation, if its runtime has any.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/sandbox/logs",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The logs", body = SandboxLogs)))]
pub(crate) async fn logs(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SandboxLogs>, ApiError> {
    let (_, _permit) = state.workspace_with_permit(&id, &caller).await?;
    let logs = state.conversations.sandbox_logs(&id).await;
    logs.map(Json).map_err(ApiError::from_sandbox)
}

/// Closes an idle conversation, and freezes the processes of its sandbox, if its runtime can. The
/// next command that runs the conversation resumes it.
#[utoipa::path(post, path = "/api/v2/conversations/{id}/sandbox/pause",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 204, description = "It is paused")))]
pub(crate) async fn pause(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<StatusCode, ApiError> {
    let paused = state.conversations.pause_sandbox(&id).await;
    paused.map_err(ApiError::from_sandbox)?;
    Ok(StatusCode::NO_CONTENT)
}
