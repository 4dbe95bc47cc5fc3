//! Uploads of files to a conversation's workspace, streamed to the sandbox one after the other.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use conversations::WorkspaceFiles;
use engine::sandbox::ByteSource;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderMap, header};
use multer::{Constraints, Field, Multipart, SizeLimit};
use protocol::ConversationId;
use protocol::client_api::{ErrorBody, SkippedFile, UploadReply};
use tokio_util::io::StreamReader;

use super::files::workspace;
use crate::error::ApiError;
use crate::extract::ConversationPath;
use crate::paced_body::is_too_slow;
use crate::state::ServerState;

/// The name of the fields with files.
const FIELD: &str = "files";

/// Maximum size of a request, in bytes. No file is in memory as a whole, so this protects the disk
/// of the sandbox.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum size of a part's head. Clients send two or three short lines.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Maximum number of files of a request.
const MAX_FILES: usize = 1000;

/// The body of a request.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct UploadForm {
    /// The files.
    #[schema(value_type = Vec<String>, format = Binary)]
    files: Vec<Vec<u8>>,
}

/// Stores files in the workspace.
#[utoipa::path(post, path = "/api/conversations/{id}/upload-files",
    params(("id" = ConversationId, Path, description = "The conversation")),
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses((status = 200, description = "The stored and the skipped files", body = UploadReply)))]
pub(super) async fn upload(
    State(state): State<Arc<ServerState>>,
    ConversationPath(id): ConversationPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    // V0's page uploads files at once, and would lose the message.
    let conversations = state.conversations.conversations();
    let files = conversations.connected_workspace(&id).await?;
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let boundary = multer::parse_boundary(content_type.unwrap_or_default());
    let boundary = boundary.map_err(|error| ApiError::invalid("content-type", error))?;
    let mut reply = UploadReply::default();
    match store_all(&files, body, boundary, &mut reply).await {
        Ok(()) => Ok(Json(reply).into_response()),
        Err(error) => {
            // The sandbox may be gone because the conversation was stopped or deleted meanwhile.
            workspace(&state, &id).await?;
            Ok(to_partial_response(error, reply))
        }
    }
}

/// Stores the files of a body, one after the other.
async fn store_all(
    workspace: &WorkspaceFiles,
    body: Body,
    boundary: String,
    reply: &mut UploadReply,
) -> Result<(), ApiError> {
    let limits = Constraints::new().size_limit(SizeLimit::new().whole_stream(MAX_BYTES));
    let budget = HeadBudget::default();
    let mut fields = Multipart::with_constraints(budget.limit(body), boundary, limits);
    let mut count = 0;
    loop {
        budget.start_head();
        let Some(field) = fields.next_field().await.map_err(to_error)? else {
            return Ok(());
        };
        budget.end_head();
        count += 1;
        if count > MAX_FILES {
            return Err(ApiError::invalid(
                FIELD,
                format_args!("must be at most {MAX_FILES} files"),
            ));
        }
        if field.name() != Some(FIELD) {
            let name = field.name().unwrap_or_default().to_owned();
            return Err(ApiError::invalid(
                name,
                format_args!("is not a field of this route: send {FIELD}"),
            ));
        }
        store(workspace, field, reply).await?;
    }
}

/// Returns an error that names the files which were stored and skipped before it.
fn to_partial_response(error: ApiError, reply: UploadReply) -> Response {
    let body = PartialUpload {
        error: error.to_body(),
        reply,
    };
    let (mut parts, _) = error.into_response().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(
        parts,
        Body::from(serde_json::to_vec(&body).unwrap_or_default()),
    )
}

/// The body of an error after some files.
#[derive(serde::Serialize)]
struct PartialUpload {
    #[serde(flatten)]
    error: ErrorBody,
    #[serde(flatten)]
    reply: UploadReply,
}

/// Stores a file. One that the workspace does not accept is skipped, and the others are still
/// stored.
async fn store(
    workspace: &WorkspaceFiles,
    field: Field<'static>,
    reply: &mut UploadReply,
) -> Result<(), ApiError> {
    let name = field.file_name().unwrap_or_default().to_owned();
    let field = Arc::new(Mutex::new(SharedField { field, error: None }));
    let stored = workspace.upload(&name, to_source(Arc::clone(&field))).await;
    match stored {
        Ok(path) => reply.uploaded_files.push(path),
        Err(error) => {
            if let Some(error) = lock(&field).error.take() {
                return Err(to_error(error));
            }
            if !error.is_about_request() {
                return Err(error.into());
            }
            reply.skipped_files.push(SkippedFile {
                name,
                reason: error.to_string(),
            });
        }
    }
    // Reads the rest of a skipped file, so that only a head follows.
    let rest = stream::poll_fn(|context| lock(&field).field.poll_next_unpin(context));
    rest.try_for_each(|_| std::future::ready(Ok(())))
        .await
        .map_err(to_error)
}

/// A field that is read by an upload, and after it.
struct SharedField {
    field: Field<'static>,
    /// Why reading has failed, which the sandbox's client reports only as a failed upload.
    error: Option<multer::Error>,
}

/// Never held across an await.
fn lock(field: &Mutex<SharedField>) -> MutexGuard<'_, SharedField> {
    field.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the content of a field.
fn to_source(field: Arc<Mutex<SharedField>>) -> ByteSource {
    let chunks = stream::poll_fn(move |context| {
        let mut shared = lock(&field);
        shared.field.poll_next_unpin(context).map_err(|error| {
            let text = error.to_string();
            shared.error = Some(error);
            io::Error::other(text)
        })
    });
    // `StreamReader` would treat an empty chunk as the end.
    let chunks = chunks.try_filter(|chunk: &Bytes| std::future::ready(!chunk.is_empty()));
    Box::new(StreamReader::new(Box::pin(chunks)))
}

/// Bounds the heads of parts, which multer 3.1 buffers without a limit.
#[derive(Clone, Default)]
struct HeadBudget(Arc<HeadBytes>);

#[derive(Default)]
struct HeadBytes {
    is_head: AtomicBool,
    /// Bytes that were received since the start of the head. `Relaxed` suffices: one task uses
    /// both.
    count: AtomicUsize,
}

impl HeadBudget {
    fn start_head(&self) {
        self.0.is_head.store(true, Ordering::Relaxed);
        self.0.count.store(0, Ordering::Relaxed);
    }

    fn end_head(&self) {
        self.0.is_head.store(false, Ordering::Relaxed);
    }

    /// Limits the chunks of a body. After each, there is a pause, in which multer parses it instead
    /// of buffering the next.
    fn limit(&self, body: Body) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let (bytes, mut chunks, mut is_parsed) =
            (Arc::clone(&self.0), body.into_data_stream(), true);
        stream::poll_fn(move |context| {
            if !std::mem::replace(&mut is_parsed, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let is_head = bytes.is_head.load(Ordering::Relaxed);
            if is_head && bytes.count.load(Ordering::Relaxed) > MAX_HEAD_BYTES {
                return Poll::Ready(Some(Err(io::Error::other(
                    "the head of a part is too long",
                ))));
            }
            let chunk = chunks.poll_next_unpin(context).map_err(io::Error::other);
            if let Poll::Ready(Some(Ok(chunk))) = &chunk {
                is_parsed = false;
                bytes.count.fetch_add(chunk.len(), Ordering::Relaxed);
            }
            chunk
        })
    }
}

fn to_error(error: multer::Error) -> ApiError {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => {
            ApiError::TooLarge
        }
        multer::Error::StreamReadFailed(source) if is_too_slow(source.as_ref()) => {
            ApiError::BodyTooSlow
        }
        multer::Error::StreamReadFailed(source) => ApiError::invalid("body", source),
        error => ApiError::invalid("body", error),
    }
}
