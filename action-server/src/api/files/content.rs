//! Reads and writes the contents of files in parts. The next part is read while one is sent, and
//! received while one is written. No thread blocks on a client.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Json;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use protocol::sandbox_api::{FileStatus, PathQuery, UploadQuery};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

use super::query::FileQuery;
use crate::api::Api;
use crate::api::error::ApiError;
use crate::files::{
    FileError, Files, OpenFile, PART_BYTES, RequestedRange, UnreadFile, Upload, requested_range,
};

/// Maximum number of body chunks in one part. Each may hold a buffer that is larger than the chunk.
const MAX_PIECES: usize = 64;

/// `GET` and `HEAD /v1/files`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/files",
    params(
        PathQuery,
        ("range" = Option<String>, Header, description = "As in HTTP; one range"),
        ("if-range" = Option<String>, Header, description = "The tag that the range belongs to"),
        ("if-none-match" = Option<String>, Header, description = "Tags of the contents that the client has")
    ),
    responses(
        (status = 200, description = "The bytes",
            body = crate::openapi::Bytes, content_type = "application/octet-stream"),
        (status = 206, description = "The bytes of the range",
            body = crate::openapi::Bytes, content_type = "application/octet-stream"),
        (status = 304, description = "The client has this content")
    )
))]
pub(super) async fn download(
    State(api): State<Api>,
    method: Method,
    headers: HeaderMap,
    FileQuery(query): FileQuery<PathQuery>,
) -> Result<Response, ApiError> {
    let transfer = api.start_transfer()?;
    let path = api.path(&query.path);
    let is_read = method != Method::HEAD;
    let started = api
        .on_files(move |files| Download::start(files, &path, &headers, is_read))
        .await?;
    Ok(match started {
        Download::Unchanged(head) => (StatusCode::NOT_MODIFIED, head).into_response(),
        Download::OutOfRange(length) => return Err(ApiError::Range(length)),
        Download::Read {
            status,
            head,
            first,
            rest: None,
        } => (status, head, Body::from(first)).into_response(),
        Download::Read {
            status,
            head,
            first,
            rest: Some(rest),
        } => (
            status,
            head,
            Body::from_stream(parts(first, rest, transfer)),
        )
            .into_response(),
    })
}

/// Result of opening the file. A short file has been read completely.
enum Download {
    Unchanged(HeaderMap),
    /// Holds the length of the file.
    OutOfRange(u64),
    Read {
        status: StatusCode,
        head: HeaderMap,
        first: Bytes,
        rest: Option<UnreadFile>,
    },
}

impl Download {
    fn start(
        files: &Files,
        path: &Path,
        headers: &HeaderMap,
        is_read: bool,
    ) -> Result<Self, FileError> {
        let opened = OpenFile::open(files, path)?;
        let mut head = head(&opened);
        if is_not_modified(headers, &opened) {
            return Ok(Self::Unchanged(head));
        }
        let failed = |error| FileError::io("read", path, error);
        let (status, length, rest) = match if is_read {
            range(headers, &opened)
        } else {
            RequestedRange::Whole
        } {
            RequestedRange::Outside => return Ok(Self::OutOfRange(opened.length)),
            RequestedRange::Whole => (StatusCode::OK, opened.length, opened.whole()),
            RequestedRange::Part(range) => {
                let value = format!("bytes {}-{}/{}", range.start, range.end - 1, opened.length);
                insert(&mut head, header::CONTENT_RANGE, &value);
                let length = range.end - range.start;
                (
                    StatusCode::PARTIAL_CONTENT,
                    length,
                    opened.part(range).map_err(failed)?,
                )
            }
        };
        // A file of `/proc` has length 0 until it is read, so no content length is sent for that.
        if length > 0 {
            head.insert(header::CONTENT_LENGTH, length.into());
        }
        let (first, rest) = if is_read {
            rest.read().map_err(failed)?
        } else {
            (Bytes::new(), None)
        };
        Ok(Self::Read {
            status,
            head,
            first,
            rest,
        })
    }
}

fn head(opened: &OpenFile) -> HeaderMap {
    let mut head = HeaderMap::new();
    head.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    head.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    insert(&mut head, header::ETAG, &opened.tag);
    if let Some(modified) = last_modified(opened) {
        insert(&mut head, header::LAST_MODIFIED, &modified);
    }
    head
}

/// Ignores values that a header cannot contain; there are none.
fn insert(head: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        head.insert(name, value);
    }
}

/// `None` for years with more than four digits, which HTTP dates cannot express.
fn last_modified(opened: &OpenFile) -> Option<String> {
    let year_10_000 = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800);
    opened
        .modified
        .filter(|modified| *modified < year_10_000)
        .map(httpdate::fmt_http_date)
}

/// Returns whether the client has this content.
fn is_not_modified(headers: &HeaderMap, opened: &OpenFile) -> bool {
    let known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|known| known.to_str().ok());
    known.is_some_and(|known| known.split(',').any(|tag| tag.trim() == opened.tag))
}

/// Returns the requested range, or the whole file if its content is not the one that the range
/// belongs to.
fn range(headers: &HeaderMap, opened: &OpenFile) -> RequestedRange {
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    match text(header::IF_RANGE) {
        Some(tag) if tag != opened.tag => RequestedRange::Whole,
        _ => requested_range(text(header::RANGE), opened.length),
    }
}

fn parts(
    first: Bytes,
    rest: UnreadFile,
    transfer: OwnedSemaphorePermit,
) -> impl Stream<Item = io::Result<Bytes>> {
    let read = |rest: UnreadFile| spawn_blocking(move || rest.read());
    let others = stream::try_unfold(
        (Some(read(rest)), transfer),
        move |(next, transfer)| async move {
            let Some(next) = next else { return Ok(None) };
            let (part, rest) = next.await.map_err(io::Error::other)??;
            Ok(Some((part, (rest.map(read), transfer))))
        },
    );
    stream::iter([Ok(first)]).chain(others)
}

/// `PUT /v1/files`. If the client disconnects, the received part is removed.
#[cfg_attr(test, utoipa::path(
    put,
    path = "/v1/files",
    params(
        UploadQuery
    ),
    request_body(content = crate::openapi::Bytes, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file was replaced", body = FileStatus),
        (status = 201, description = "The file was created", body = FileStatus)
    )
))]
pub(super) async fn upload(
    State(api): State<Api>,
    FileQuery(query): FileQuery<UploadQuery>,
    body: Body,
) -> Result<(StatusCode, Json<FileStatus>), ApiError> {
    let _transfer = api.start_transfer()?;
    let path = api.path(&query.path);
    let mut pieces = body.into_data_stream();
    let files = Arc::clone(&api.executor().files);
    let mut writing = spawn_blocking(move || {
        Upload::start(&files, &path, query.mode).map(UnfinishedUpload::from)
    });
    loop {
        let (part, is_last) = part(&mut pieces).await?;
        let unfinished = writing.await.map_err(|_| ApiError::Failed)??;
        let mut upload = unfinished.into_upload().ok_or(ApiError::Failed)?;
        if is_last {
            let finish = move |files: &Files| {
                upload.write(&part)?;
                upload.finish(files)
            };
            let (status, is_new) = api.on_files(finish).await?;
            return Ok((
                if is_new {
                    StatusCode::CREATED
                } else {
                    StatusCode::OK
                },
                Json(status),
            ));
        }
        writing = spawn_blocking(move || {
            upload.write(&part)?;
            Ok(UnfinishedUpload::from(upload))
        });
    }
}

/// Receives the chunks of one part. Returns `true` with the last part.
async fn part(pieces: &mut BodyDataStream) -> Result<(Vec<Bytes>, bool), ApiError> {
    let (mut part, mut length) = (Vec::new(), 0);
    while length < PART_BYTES && part.len() < MAX_PIECES {
        match pieces.next().await {
            Some(Ok(piece)) => {
                length += piece.len();
                part.push(piece);
            }
            Some(Err(error)) => return Err(ApiError::Body(error.to_string())),
            None => return Ok((part, true)),
        }
    }
    Ok((part, false))
}

/// Drops an incomplete upload in a blocking thread, because removing a long file takes time.
struct UnfinishedUpload(Option<Upload>);

impl From<Upload> for UnfinishedUpload {
    fn from(upload: Upload) -> Self {
        Self(Some(upload))
    }
}

impl UnfinishedUpload {
    /// Returns the upload, for use where blocking is allowed.
    fn into_upload(mut self) -> Option<Upload> {
        self.0.take()
    }
}

impl Drop for UnfinishedUpload {
    fn drop(&mut self) {
        if let (Some(upload), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(upload));
        }
    }
}
