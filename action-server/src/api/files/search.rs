//! Searches by name and by content. A search stops if its client disconnects.

use axum::Json;
use axum::extract::State;
use protocol::sandbox_api::{FileList, GlobQuery, GrepMatches, GrepQuery};

use super::query::FileQuery;
use crate::api::Api;
use crate::api::error::ApiError;
use crate::files::{self, MAX_TIME};

/// `GET /v1/files/glob`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/glob",
    params(
        GlobQuery
    ),
    responses((status = 200, description = "Matching paths", body = FileList))
))]
pub(super) async fn glob(
    State(api): State<Api>,
    FileQuery(query): FileQuery<GlobQuery>,
) -> Result<Json<FileList>, ApiError> {
    let path = api.path(&query.path);
    api.long_on_files(MAX_TIME, move |files, stop| {
        files::glob(files, &path, &query, stop)
    })
    .await
    .map(Json)
}

/// `GET /v1/files/grep`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/grep",
    params(
        GrepQuery
    ),
    responses((status = 200, description = "Matching lines", body = GrepMatches))
))]
pub(super) async fn grep(
    State(api): State<Api>,
    FileQuery(query): FileQuery<GrepQuery>,
) -> Result<Json<GrepMatches>, ApiError> {
    let path = api.path(&query.path);
    api.long_on_files(MAX_TIME, move |files, stop| {
        files::grep(files, &path, &query, stop)
    })
    .await
    .map(Json)
}
