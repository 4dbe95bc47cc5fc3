//! Folders as archives. Each occupies a thread that waits for its client, so few are allowed
//! concurrently.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use protocol::sandbox_api::{PathQuery, TREE_MEDIA_TYPE};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_blocking;

use super::query::FileQuery;
use super::{FileLimits, MAX_TREES};
use crate::api::Api;
use crate::api::error::ApiError;
use crate::files::{self, ArchiveLimits, BodyPart, FileError};

/// Number of buffered parts between a thread and a client: one is sent, one is read or written, and
/// two even out the pace.
const PARTS: usize = 4;

/// More than any source tree with its dependencies, but less than what fills a disk unnoticed.
const LIMITS: ArchiveLimits = ArchiveLimits {
    entries: 500_000,
    bytes: 16 << 30,
    free_bytes: 256 << 20,
};

/// `GET /v1/files/tree`. If the folder cannot be read to its end, the connection is reset.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/tree",
    params(
        PathQuery
    ),
    responses(
        (status = 200, description = "The folder as an archive",
            body = crate::openapi::Bytes, content_type = "application/x-tar")
    )
))]
pub(super) async fn download(
    State(api): State<Api>,
    FileQuery(query): FileQuery<PathQuery>,
) -> Result<Response, ApiError> {
    let turn = acquire(&api.0.file_limits)?;
    let folder = api.path(&query.path);
    let folder = api
        .on_files(move |files| files::open_folder(files, &folder))
        .await?;
    let (parts, arriving) = channel(PARTS);
    spawn_blocking(move || {
        let _turn = turn;
        files::pack(&folder, parts);
    });
    let next = |mut arriving: Receiver<io::Result<Bytes>>| async {
        Some((arriving.recv().await?, arriving))
    };
    let body = Body::from_stream(stream::unfold(arriving, next));
    Ok(([(header::CONTENT_TYPE, TREE_MEDIA_TYPE)], body).into_response())
}

/// `PUT /v1/files/tree`. Responds as soon as an entry is rejected.
#[cfg_attr(test, utoipa::path(
    put,
    path = "/v1/files/tree",
    params(
        PathQuery
    ),
    request_body(content = crate::openapi::Bytes, content_type = "application/x-tar"),
    responses((status = 204, description = "The archive was unpacked"))
))]
pub(super) async fn upload(
    State(api): State<Api>,
    FileQuery(query): FileQuery<PathQuery>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let turn = acquire(&api.0.file_limits)?;
    let folder = api.path(&query.path);
    let (parts, arriving) = channel(PARTS);
    let files = Arc::clone(&api.executor().files);
    let unpacking = spawn_blocking(move || {
        let _turn = turn;
        files::unpack(&files, &folder, arriving, LIMITS)
    });
    let mut pieces = body.into_data_stream();
    loop {
        let arrived = match pieces.next().await {
            Some(Ok(piece)) => BodyPart::Part(piece),
            Some(Err(error)) => return Err(ApiError::Body(error.to_string())),
            None => BodyPart::End,
        };
        let is_end = matches!(arrived, BodyPart::End);
        if parts.send(arrived).await.is_err() || is_end {
            break;
        }
    }
    unpacking.await.map_err(|_| ApiError::Failed)??;
    Ok(StatusCode::NO_CONTENT)
}

fn acquire(limits: &FileLimits) -> Result<OwnedSemaphorePermit, ApiError> {
    let permit = Arc::clone(&limits.trees).try_acquire_owned();
    permit.map_err(|_| {
        FileError::TooMany {
            limit: MAX_TREES,
            what: "concurrent archives",
        }
        .into()
    })
}
