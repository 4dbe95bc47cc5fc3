//! Changes of the git repositories in a conversation's workspace. The conversation must run.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use http::HeaderValue;
use protocol::ConversationId;
use protocol::client_api::v2::git::{
    ChangeList, CompareFile, DiffFiles, FileVersions, ListChanges,
};

use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters, RequestCaller};
use crate::state::ServerState;

pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v2/conversations/{id}/git/changes", get(changes))
        .route("/v2/conversations/{id}/git/diff", get(diff))
        .route("/v2/conversations/{id}/git/versions", get(versions))
}

/// Lists the files that differ from the remote branch, or from the current commit.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/git/changes",
    params(("id" = ConversationId, Path, description = "The conversation"), ListChanges),
    responses((status = 200, description = "The changes", body = ChangeList)))]
pub(crate) async fn changes(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(request): QueryParameters<ListChanges>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, ApiError> {
    let (workspace, permit) = state.workspace_with_permit(&id, &caller).await?;
    permit
        .respond(workspace.change_list(request.base).await?)
        .await
}

/// Returns the changes of a file or folder as a patch of the workspace, at most 8 MiB.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/git/diff",
    params(("id" = ConversationId, Path, description = "The conversation"), DiffFiles),
    responses((status = 200, description = "The patch", body = String, content_type = "text/x-diff")))]
pub(crate) async fn diff(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(DiffFiles { path, base }): QueryParameters<DiffFiles>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, ApiError> {
    let (workspace, permit) = state.workspace_with_permit(&id, &caller).await?;
    let patch = workspace.diff(&path, base).await?;
    let content_type = HeaderValue::from_static("text/x-diff");
    Ok(permit.respond_with(content_type, patch.into()))
}

/// Returns a text file in the workspace and in the remote branch, or in the current commit.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/git/versions",
    params(("id" = ConversationId, Path, description = "The conversation"), CompareFile),
    responses((status = 200, description = "Both versions", body = FileVersions)))]
pub(crate) async fn versions(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(CompareFile { path, base }): QueryParameters<CompareFile>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, ApiError> {
    let (workspace, permit) = state.workspace_with_permit(&id, &caller).await?;
    permit.respond(workspace.versions(&path, base).await?).await
}
