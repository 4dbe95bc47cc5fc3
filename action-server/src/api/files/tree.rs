//! Folders as archives. Each occupies a thread that waits for its client, so few are allowed
//! concurrently.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::ready;
use futures_util::{StreamExt as _, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use protocol::sandbox_api::{PathQuery, SKIPPED_TRAILER, SkippedEntries, TREE_MEDIA_TYPE};
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

/// `GET /v1/files/tree`. Entries that cannot be read are left out, and listed in a trailer. If the
/// archive cannot be completed, the stream is reset.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files/tree",
    params(
        PathQuery
    ),
    responses(
        (status = 200, description = "The folder as an archive. If entries are left out because they \
            cannot be read or are special files, the trailer `glovebox-skipped` has their `count`, \
            and the first ones in `named`, as JSON",
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
    let packing = spawn_blocking(move || {
        let _turn = turn;
        files::pack(&folder, parts)
    });
    let next = |mut arriving: Receiver<io::Result<Bytes>>| async {
        Some((arriving.recv().await?.map(Frame::data), arriving))
    };
    let trailers = stream::once(async {
        let skipped = packing.await.map_err(io::Error::other)?;
        trailers(&skipped).transpose()
    });
    let trailers = trailers.filter_map(|trailers| ready(trailers.transpose()));
    let frames = stream::unfold(arriving, next).chain(trailers);
    let head = [
        (header::CONTENT_TYPE, TREE_MEDIA_TYPE),
        (header::TRAILER, SKIPPED_TRAILER),
    ];
    Ok((head, Body::new(StreamBody::new(frames))).into_response())
}

/// Returns the trailers of an archive. `None` if it is complete.
fn trailers(skipped: &SkippedEntries) -> Option<io::Result<Frame<Bytes>>> {
    let value = HeaderValue::try_from(skipped.to_trailer()?).map_err(io::Error::other);
    let name = HeaderName::from_static(SKIPPED_TRAILER);
    Some(value.map(|value| Frame::trailers(HeaderMap::from_iter([(name, value)]))))
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
