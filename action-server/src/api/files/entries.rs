//! Files and folders: status, list, move, create, remove, change mode.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use protocol::sandbox_api::{
    ChangeModeRequest, FileList, FileStatus, ListQuery, MakeFolderRequest, ModeChanged,
    MoveRequest, RemoveQuery, StatusQuery,
};

use super::query::{FileQuery, body};
use crate::api::Api;
use crate::api::error::ApiError;
use crate::api::extract::JsonBody;
use crate::files;

/// Maximum time to list or to change modes. For more files, a shell command is a better choice.
const MAX_TIME: Duration = Duration::from_secs(60);

/// `GET /v1/files/stat`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/stat",
    params(
        StatusQuery
    ),
    responses((status = 200, description = "Status of the path", body = FileStatus))
))]
pub(super) async fn status(
    State(api): State<Api>,
    FileQuery(query): FileQuery<StatusQuery>,
) -> Result<Json<FileStatus>, ApiError> {
    let path = api.path(&query.path);
    api.on_files(move |files| files::status(files, &path, query.follow))
        .await
        .map(Json)
}

/// `GET /v1/files/list`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/list",
    params(
        ListQuery
    ),
    responses((status = 200, description = "Contents of the folder", body = FileList))
))]
pub(super) async fn list(
    State(api): State<Api>,
    FileQuery(query): FileQuery<ListQuery>,
) -> Result<Json<FileList>, ApiError> {
    let path = api.path(&query.path);
    api.long_on_files(MAX_TIME, move |files, stop| {
        files::list(files, &path, &query, stop)
    })
    .await
    .map(Json)
}

/// `DELETE /v1/files`. Continues if the client disconnects.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/files",
    params(
        RemoveQuery
    ),
    responses((status = 204, description = "The path was removed"))
))]
pub(super) async fn remove(
    State(api): State<Api>,
    FileQuery(query): FileQuery<RemoveQuery>,
) -> Result<StatusCode, ApiError> {
    let path = api.path(&query.path);
    api.on_files(move |files| files::remove(files, &path, query.recursive))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/files/move`.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/files/move",
    request_body = MoveRequest,
    responses((status = 200, description = "Status of the new path", body = FileStatus))
))]
pub(super) async fn rename(
    State(api): State<Api>,
    JsonBody(json): JsonBody,
) -> Result<Json<FileStatus>, ApiError> {
    let request: MoveRequest = body(json)?;
    let (from, to) = (api.path(&request.from), api.path(&request.to));
    api.on_files(move |files| files::rename(files, &from, &to, request.overwrite))
        .await
        .map(Json)
}

/// `POST /v1/files/mkdir`.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/files/mkdir",
    request_body = MakeFolderRequest,
    responses(
        (status = 200, description = "The folder existed", body = FileStatus),
        (status = 201, description = "The folder was created", body = FileStatus)
    )
))]
pub(super) async fn make_folder(
    State(api): State<Api>,
    JsonBody(json): JsonBody,
) -> Result<(StatusCode, Json<FileStatus>), ApiError> {
    let request: MakeFolderRequest = body(json)?;
    let path = api.path(&request.path);
    let (status, is_new) = api
        .on_files(move |files| files::make_folder(files, &path, &request))
        .await?;
    Ok((
        if is_new {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        },
        Json(status),
    ))
}

/// `POST /v1/files/chmod`.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/files/chmod",
    request_body = ChangeModeRequest,
    responses((status = 200, description = "How many were changed", body = ModeChanged))
))]
pub(super) async fn change_mode(
    State(api): State<Api>,
    JsonBody(json): JsonBody,
) -> Result<Json<ModeChanged>, ApiError> {
    let request: ChangeModeRequest = body(json)?;
    let path = api.path(&request.path);
    api.long_on_files(MAX_TIME, move |files, stop| {
        files::change_mode(files, &path, &request, stop)
    })
    .await
    .map(Json)
}
