//! Uploads of files to a conversation's workspace, streamed to the sandbox one after the other.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use conversations::WorkspaceFiles;
use engine::sandbox::ByteSource;
use futures_util::TryStreamExt as _;
use http::{HeaderMap, header};
use multer::{Constraints, Field, Multipart, SizeLimit};
use protocol::ConversationId;
use protocol::client_api::{SkippedFile, UploadReply};
use tokio_util::io::StreamReader;

use super::files::workspace;
use crate::error::ApiError;
use crate::extract::ConversationPath;
use crate::state::ServerState;

/// The name of the fields with files.
const FIELD: &str = "files";

/// Maximum size of a request, in bytes. No file is in memory as a whole, so this protects the disk of the sandbox.
const MAX_BYTES: u64 = 1 << 30;

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

/// The error of a field, which the sandbox's client reports only as a failed upload.
type FieldError = Arc<Mutex<Option<multer::Error>>>;

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
) -> Result<Json<UploadReply>, ApiError> {
    let workspace = workspace(&state, &id).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = multer::parse_boundary(content_type.unwrap_or_default());
    let boundary = boundary.map_err(|error| ApiError::invalid("content-type", error))?;
    let limits = Constraints::new().size_limit(SizeLimit::new().whole_stream(MAX_BYTES));
    let mut fields = Multipart::with_constraints(body.into_data_stream(), boundary, limits);
    let mut reply = UploadReply::default();
    let mut count = 0;
    while let Some(field) = fields.next_field().await.map_err(to_error)? {
        count += 1;
        if count > MAX_FILES {
            return Err(ApiError::invalid(FIELD, format_args!("must be at most {MAX_FILES} files")));
        }
        if field.name() != Some(FIELD) {
            let name = field.name().unwrap_or_default().to_owned();
            return Err(ApiError::invalid(name, format_args!("is not a field of this route: send {FIELD}")));
        }
        store(&workspace, field, &mut reply).await?;
    }
    Ok(Json(reply))
}

/// Stores a file. One that the workspace does not accept is skipped, and the others are still stored.
async fn store(
    workspace: &WorkspaceFiles,
    field: Field<'static>,
    reply: &mut UploadReply,
) -> Result<(), ApiError> {
    let name = field.file_name().unwrap_or_default().to_owned();
    let (content, field_error) = to_source(field);
    match workspace.upload(&name, content).await {
        Ok(path) => reply.uploaded_files.push(path),
        Err(error) => {
            if let Some(error) = field_error.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(to_error(error));
            }
            if !error.is_about_request() {
                return Err(error.into());
            }
            reply.skipped_files.push(SkippedFile { name, reason: error.to_string() });
        }
    }
    Ok(())
}

/// Returns the content of a field, and where its error is stored if it fails.
fn to_source(field: Field<'static>) -> (ByteSource, FieldError) {
    let failed = FieldError::default();
    let stored = Arc::clone(&failed);
    let chunks = field.map_err(move |error| {
        let text = error.to_string();
        *stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        io::Error::other(text)
    });
    // `StreamReader` would treat an empty chunk as the end.
    let chunks = chunks.try_filter(|chunk: &Bytes| std::future::ready(!chunk.is_empty()));
    (Box::new(StreamReader::new(Box::pin(chunks))), failed)
}

fn to_error(error: multer::Error) -> ApiError {
    match error {
        multer::Error::StreamSizeExceeded { .. } | multer::Error::FieldSizeExceeded { .. } => {
            ApiError::TooLarge
        }
        error => ApiError::invalid("body", error),
    }
}
