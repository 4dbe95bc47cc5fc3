//! Files of a conversation's workspace. The conversation must run: reading a file starts nothing.
//!
//! No content of a sandbox is served with a type that a browser would run: it is a text in JSON, or
//! an attachment.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use conversations::WorkspaceFiles;
use http::{HeaderName, HeaderValue, header};
use protocol::ConversationId;
use protocol::client_api::FileContent;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::extract::{ConversationPath, QueryParameters, RequestCaller};
use crate::state::ServerState;
use crate::work::{DownloadPermit, WorkPermit, stream_content};

/// Present if a list of files is not complete. V0's shape has no place for it.
const TRUNCATED: HeaderName = HeaderName::from_static("x-truncated");

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default)]
pub(super) struct ListQuery {
    /// The folder. Empty for the workspace.
    path: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SelectQuery {
    /// The file, absolute or relative to the workspace.
    file: String,
}

/// Returns access to the files of a running conversation.
pub(super) async fn workspace(
    state: &ServerState,
    id: &ConversationId,
) -> Result<WorkspaceFiles, ApiError> {
    Ok(state
        .conversations
        .conversations()
        .workspace_files(id)
        .await?)
}

/// Lists the names in a folder. Those of folders end in `/`.
#[utoipa::path(get, path = "/api/conversations/{id}/list-files",
    params(("id" = ConversationId, Path, description = "The conversation"), ListQuery),
    responses(
    (status = 200, description = "The names", body = Vec<String>,
        headers(("x-truncated" = bool, description = "Set if there are more than 10,000"))),
))]
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(ListQuery { path }): QueryParameters<ListQuery>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let folder = workspace(&state, &id).await?.list(&path).await?;
    let mut response = permit.respond(folder.names).await?;
    if folder.is_truncated {
        response
            .headers_mut()
            .insert(TRUNCATED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Returns the text of a file.
#[utoipa::path(get, path = "/api/conversations/{id}/select-file",
    params(("id" = ConversationId, Path, description = "The conversation"), SelectQuery),
    responses((status = 200, description = "The text", body = FileContent)))]
pub(super) async fn select(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(SelectQuery { file }): QueryParameters<SelectQuery>,
    permit: WorkPermit,
) -> Result<Response, ApiError> {
    let code = workspace(&state, &id).await?.read_text(&file).await?;
    permit.respond(FileContent { code }).await
}

/// Streams the workspace. If it cannot be packed to its end, the connection is closed without the
/// end of the body, so that clients see that the file is incomplete.
#[utoipa::path(get, path = "/api/conversations/{id}/zip-directory",
    params(("id" = ConversationId, Path, description = "The conversation")),
    responses(
    (status = 200, description = "The workspace", body = crate::openapi::Bytes, content_type = "application/zip"),
))]
pub(super) async fn zip(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, ApiError> {
    let workspace = workspace(&state, &id).await?;
    let permit = DownloadPermit::acquire(&state, &caller)?;
    let content = workspace.archive("").await?;
    let headers = [
        (header::CONTENT_TYPE, "application/zip"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"workspace.zip\"",
        ),
    ];
    Ok((headers, stream_content(content, permit)).into_response())
}
