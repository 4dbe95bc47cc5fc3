//! `POST /list_files`: lists the names in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::V0;
use crate::api::error::ApiError;
use crate::api::extract::JsonBody;

/// Maximum number of names; a folder can have millions.
const MAX_NAMES: usize = 100_000;

/// Lists `{"path"?}`, relative to the working directory, which is the default. Folders come first,
/// with a trailing `/`. A folder that cannot be read is empty.
pub(super) async fn list_files(
    State(v0): State<V0>,
    JsonBody(body): JsonBody,
) -> Result<Json<Vec<String>>, ApiError> {
    let Value::Object(body) = body else {
        return Err(ApiError::Malformed("the body: expected an object".into()));
    };
    let folder = match body.get("path") {
        None | Some(Value::Null) => v0.working_dir().to_owned(),
        Some(Value::String(path)) => v0.executor().files.absolute(path, v0.working_dir()),
        Some(_) => {
            return Err(ApiError::Malformed(
                "field `path`: expected a string".into(),
            ));
        }
    };
    let names = tokio::task::spawn_blocking(move || names_in(folder)).await;
    Ok(Json(names.map_err(|_| ApiError::Failed)?))
}

fn names_in(folder: PathBuf) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for entry in entries.filter_map(Result::ok).take(MAX_NAMES) {
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links are followed; dangling ones are skipped.
        match kind_of(&entry.path()) {
            Some(true) => folders.push(name + "/"),
            Some(false) => files.push(name),
            None => {}
        }
    }
    for names in [&mut folders, &mut files] {
        names.sort_by_cached_key(|name| (name.to_lowercase(), name.clone()));
    }
    folders.append(&mut files);
    folders
}

fn kind_of(path: &Path) -> Option<bool> {
    fs::metadata(path).ok().map(|metadata| metadata.is_dir())
}
