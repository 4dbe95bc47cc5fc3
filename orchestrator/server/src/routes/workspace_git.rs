//! Changes of the git repositories in a conversation's workspace.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use conversations::WorkspaceError;
use protocol::ConversationId;
use protocol::client_api::v2::git::GitBase;
use protocol::client_api::{FileChangeInfo, FileDiff};
use serde::Deserialize;
use utoipa::IntoParams;

use super::files::workspace;
use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters};
use crate::state::ServerState;
use crate::work::WorkPermit;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// The file, absolute or relative to the workspace.
    path: String,
}

/// Lists the files that differ from the remote branch. Empty without a repository.
#[utoipa::path(get, path = "/api/conversations/{id}/git/changes",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses((status = 200, description = "The changes", body = Vec<FileChangeInfo>)))]
pub(super) async fn changes(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let changes = match workspace(&state, &id).await?.changes(GitBase::Remote).await {
        // As in V0.
        Err(WorkspaceError::NoRepository) => Vec::new(),
        changes => changes?,
    };
    let changes = changes.into_iter().map(|change| FileChangeInfo {
        status: change.status.letter(),
        path: change.path,
    });
    permit.respond(changes.collect::<Vec<_>>()).await
}

/// Returns a file in the workspace and in the remote branch.
#[utoipa::path(get, path = "/api/conversations/{id}/git/diff",
    params(("id" = ConversationId, Path, description = "The conversation"), DiffQuery),
    responses((status = 200, description = "Both versions", body = FileDiff)))]
pub(super) async fn diff(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(DiffQuery { path }): QueryParameters<DiffQuery>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let workspace = workspace(&state, &id).await?;
    let versions = workspace.versions(&path, GitBase::Remote).await?;
    permit
        .respond(FileDiff {
            modified: versions.modified.unwrap_or_default(),
            original: versions.original.unwrap_or_default(),
        })
        .await
}
