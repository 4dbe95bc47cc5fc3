//! `GET /download_files?path=`: streams a folder or a file as a zip archive.

pub(super) mod pack;
mod sending;

use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::V0;
use super::query::read_query;
use crate::api::error::ApiError;

#[derive(Debug, Deserialize)]
struct DownloadParameters {
    path: String,
}

/// Errors are reported before the response starts, if possible. A later error resets the
/// connection.
pub(super) async fn download_files(
    State(v0): State<V0>,
    request: Request,
) -> Result<Response, ApiError> {
    let DownloadParameters { path } = read_query(request.uri())?;
    if !Path::new(&path).is_absolute() {
        let problem = "Path must be an absolute path".to_owned();
        return Err(ApiError::Parameter {
            name: "path",
            problem,
        });
    }
    let permit = v0.transfer().await;
    let path: PathBuf = Path::new(&path).components().collect();
    let disposition = disposition(&path);
    let found = tokio::task::spawn_blocking(move || pack::find(&path)).await;
    let files = found.map_err(|_| ApiError::Failed)??;
    let body = Body::from_stream(sending::send(files, permit));
    let headers = [
        (header::CONTENT_TYPE, "application/zip".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, body).into_response())
}

/// Formats the header as V0's server does. A name that a header cannot contain is encoded.
fn disposition(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_.~".contains(character);
    if name
        .chars()
        .all(|character| is_plain(character) || character == ' ')
    {
        return format!("attachment; filename=\"{name}.zip\"");
    }
    let mut encoded = String::new();
    for byte in name.bytes() {
        match char::from(byte) {
            character if is_plain(character) => encoded.push(character),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("attachment; filename*=utf-8''{encoded}.zip")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_fits_into_the_header() {
        assert_eq!(
            disposition(Path::new("/a/my project")),
            "attachment; filename=\"my project.zip\""
        );
        assert_eq!(
            disposition(Path::new("/a/é\"\r\n")),
            "attachment; filename*=utf-8''%C3%A9%22%0D%0A.zip"
        );
        assert_eq!(disposition(Path::new("/")), "attachment; filename=\".zip\"");
    }
}
