//! `POST /upload_file`: stores a file, or unpacks an archive.

mod folder;
mod multipart;
mod received_upload;
pub(super) mod unpack;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use serde::Deserialize;
use serde_json::{Value, json};

use super::V0;
use super::query::read_query;
use super::transfer_error::TransferError;
use crate::api::error::ApiError;
use folder::UploadFolder;
use received_upload::ReceivedUpload;

/// V0's clients send them in the query. The form may also contain them.
#[derive(Debug, Default, Deserialize)]
struct UploadParameters {
    destination: Option<String>,
    recursive: Option<String>,
}

/// Responds with `{"filename", "destination", "recursive"}`.
pub(super) async fn upload_file(
    State(v0): State<V0>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let _permit = v0.transfer().await;
    let (parts, body) = request.into_parts();
    let mut parameters: UploadParameters = read_query(&parts.uri)?;
    let content_type = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let folders = vec![std::env::temp_dir(), v0.working_dir().to_owned()];
    let upload = ReceivedUpload::read(content_type.unwrap_or_default(), body, folders).await?;
    for (name, value) in &upload.fields {
        match name.as_str() {
            "destination" => parameters.destination.get_or_insert_with(|| value.clone()),
            "recursive" => parameters.recursive.get_or_insert_with(|| value.clone()),
            _ => continue,
        };
    }
    let destination = parameters.destination.unwrap_or_else(|| "/".into());
    let is_recursive = parse_bool(
        "recursive",
        parameters.recursive.as_deref().unwrap_or("false"),
    )?;
    let response =
        json!({"filename": upload.filename, "destination": destination, "recursive": is_recursive});
    let work = move || store(upload, Path::new(&destination), is_recursive);
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or(Err(ApiError::Failed))?;
    Ok(Json(response))
}

fn store(upload: ReceivedUpload, destination: &Path, is_recursive: bool) -> Result<(), ApiError> {
    if !destination.is_absolute() {
        let problem = "Destination must be an absolute path".to_owned();
        return Err(ApiError::Parameter {
            name: "destination",
            problem,
        });
    }
    let name = file_name(&upload.filename)?;
    // As in V0, an archive is always unpacked.
    let is_archive = name.extension().is_some_and(|extension| extension == "zip");
    if is_recursive && !is_archive {
        let problem = "Recursive uploads must be zip files".to_owned();
        return Err(ApiError::Parameter {
            name: "recursive",
            problem,
        });
    }
    if is_archive {
        unpack::unpack(&upload.file, destination)?;
    } else {
        UploadFolder::create(destination)?.put(&name, 0o666, &mut &upload.file)?;
    }
    Ok(())
}

/// Checks that the name is not a path.
fn file_name(given: &str) -> Result<PathBuf, TransferError> {
    match given {
        "" | "." | ".." => {}
        name if name.contains(['/', '\0']) => {}
        name => return Ok(name.into()),
    }
    Err(TransferError::Refused(format!(
        "field `file`: {given:?} is not the name of a file"
    )))
}

/// Parses a boolean as V0's server does.
fn parse_bool(name: &'static str, text: &str) -> Result<bool, ApiError> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" | "t" | "y" => Ok(true),
        "false" | "0" | "no" | "off" | "f" | "n" => Ok(false),
        _ => Err(ApiError::Malformed(format!(
            "parameter `{name}`: expected true or false"
        ))),
    }
}
