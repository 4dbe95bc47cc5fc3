//! Files of a conversation's workspace. The conversation must run: no request starts one.
//!
//! Content of a sandbox is an attachment, whose type no browser runs.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use conversations::WorkspaceError;
use futures_util::TryStreamExt as _;
use http::{StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::ConversationId;
use protocol::client_api::v2::files::{
    ArchiveFolder, FileEntryPage, FilePath, ListFiles, MoveFile, ReadFile, RemoveFile,
};
use tokio_util::io::StreamReader;

use crate::error::ApiError;
use crate::extract::{ConversationPath, JsonBody, QueryParameters, RequestCaller};
use crate::paced_body::is_too_slow;
use crate::state::ServerState;
use crate::work::{DownloadPermit, stream_content};

pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v2/conversations/{id}/files", get(list).delete(remove))
        .route("/v2/conversations/{id}/files/content", get(read).put(write))
        .route("/v2/conversations/{id}/files/folder", post(make_folder))
        .route("/v2/conversations/{id}/files/move", post(rename))
        .route("/v2/conversations/{id}/files/archive", get(archive))
}

/// Lists a page of a folder, with all its entries.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/files",
    params(("id" = ConversationId, Path, description = "The conversation"), ListFiles),
    responses((status = 200, description = "The page", body = FileEntryPage)))]
pub(crate) async fn list(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(request): QueryParameters<ListFiles>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, ApiError> {
    let (workspace, permit) = state.workspace_with_permit(&id, &caller).await?;
    let page = workspace.entries(request).await?;
    permit.respond(page).await
}

/// Returns a file, or a part of it. If it cannot be read to its end, the connection is closed
/// without the end of the body.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/files/content",
    params(("id" = ConversationId, Path, description = "The conversation"), ReadFile),
    responses((status = 200, description = "The content", body = crate::openapi::Bytes,
        content_type = "application/octet-stream")))]
pub(crate) async fn read(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(request): QueryParameters<ReadFile>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, ApiError> {
    let (workspace, permit) = state.workspace_with_permit(&id, &caller).await?;
    let content = workspace.read(&request).await?;
    let name = request.path.rsplit('/').next().unwrap_or_default();
    let headers = attachment("application/octet-stream", name);
    Ok((headers, stream_content(content, permit)).into_response())
}

/// Writes a file of at most a gigabyte, with missing folders. An existing file is replaced once all
/// content has arrived.
#[utoipa::path(put, path = "/api/v2/conversations/{id}/files/content",
    params(("id" = ConversationId, Path, description = "The conversation"), FilePath),
    request_body(content = crate::openapi::Bytes, content_type = "application/octet-stream"),
    responses((status = 204, description = "It is written")))]
pub(crate) async fn write(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(FilePath { path }): QueryParameters<FilePath>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let chunks = body.into_data_stream().map_err(io::Error::other);
    // `StreamReader` would treat an empty chunk as the end.
    let chunks = chunks.try_filter(|chunk| std::future::ready(!chunk.is_empty()));
    let content = Box::new(StreamReader::new(Box::pin(chunks)));
    let written = state.workspace(&id).await?.write(&path, content).await;
    match written {
        Err(error @ WorkspaceError::Sandbox(_)) if is_too_slow(&error) => {
            Err(ApiError::BodyTooSlow)
        }
        written => Ok(written.map(|()| StatusCode::NO_CONTENT)?),
    }
}

/// Creates a folder, with missing parents. Does nothing if it exists.
#[utoipa::path(post, path = "/api/v2/conversations/{id}/files/folder",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = FilePath,
    responses((status = 204, description = "It exists")))]
pub(crate) async fn make_folder(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
    JsonBody(FilePath { path }): JsonBody<FilePath>,
) -> Result<StatusCode, ApiError> {
    let (workspace, _permit) = state.workspace_with_permit(&id, &caller).await?;
    workspace.make_folder(&path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Renames or moves a file, a link or a folder.
#[utoipa::path(post, path = "/api/v2/conversations/{id}/files/move",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body = MoveFile,
    responses((status = 204, description = "It is moved")))]
pub(crate) async fn rename(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
    JsonBody(request): JsonBody<MoveFile>,
) -> Result<StatusCode, ApiError> {
    let (workspace, _permit) = state.workspace_with_permit(&id, &caller).await?;
    workspace.rename(&request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a file, a link or a folder.
#[utoipa::path(delete, path = "/api/v2/conversations/{id}/files",
    params(("id" = ConversationId, Path, description = "The conversation"), RemoveFile),
    responses((status = 204, description = "It is removed")))]
pub(crate) async fn remove(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    QueryParameters(request): QueryParameters<RemoveFile>,
    RequestCaller(caller): RequestCaller,
) -> Result<StatusCode, ApiError> {
    let (workspace, _permit) = state.workspace_with_permit(&id, &caller).await?;
    workspace.remove(&request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Packs a folder. If it cannot be packed to its end, the connection is closed without the end of
/// the body.
#[utoipa::path(get, path = "/api/v2/conversations/{id}/files/archive",
    params(("id" = ConversationId, Path, description = "The conversation"), ArchiveFolder),
    responses((status = 200, description = "The folder", body = crate::openapi::Bytes,
        content_type = "application/zip")))]
pub(crate) async fn archive(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    RequestCaller(caller): RequestCaller,
    QueryParameters(ArchiveFolder { path }): QueryParameters<ArchiveFolder>,
) -> Result<Response, ApiError> {
    let workspace = state.workspace(&id).await?;
    let permit = DownloadPermit::acquire(&state, &caller)?;
    let content = workspace.archive(&path).await?;
    let folder = path.trim_end_matches('/').rsplit('/').next();
    let folder = folder.filter(|name| !name.is_empty());
    let name = format!("{}.zip", folder.unwrap_or("workspace"));
    let headers = attachment("application/zip", &name);
    Ok((headers, stream_content(content, permit)).into_response())
}

/// Returns the headers of content that browsers store under a name.
fn attachment(content_type: &str, name: &str) -> [(header::HeaderName, String); 2] {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename*=UTF-8''{name}"),
        ),
    ]
}
