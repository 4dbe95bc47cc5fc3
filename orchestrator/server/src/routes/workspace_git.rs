//! Changes of the git repositories in a conversation's workspace.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use protocol::client_api::{FileChangeInfo, FileDiff};
use serde::Deserialize;

use super::files::workspace;
use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters};
use crate::state::ServerState;

#[derive(Debug, Deserialize)]
pub(super) struct DiffQuery {
    path: String,
}

pub(super) async fn changes(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
) -> Result<Json<Vec<FileChangeInfo>>, ApiError> {
    let changes = workspace(&state, &id).await?.git_changes().await?;
    let changes =
        changes.into_iter().map(|change| FileChangeInfo { status: change.status, path: change.path });
    Ok(Json(changes.collect()))
}

pub(super) async fn diff(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(DiffQuery { path }): QueryParameters<DiffQuery>,
) -> Result<Json<FileDiff>, ApiError> {
    let versions = workspace(&state, &id).await?.git_diff(&path).await?;
    Ok(Json(FileDiff { modified: versions.modified, original: versions.original }))
}
