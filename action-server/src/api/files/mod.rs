//! `/v1/files…`: the files of the sandbox, by path. Blocking operations run in blocking threads.

mod content;
mod entries;
mod query;
mod search;
mod tree;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Api;
use crate::api::error::ApiError;
use crate::files::{FileError, Files, StopSignal};

/// Maximum number of concurrent uploads and downloads. Each uses two parts, half a MiB.
const MAX_TRANSFERS: usize = 64;

/// Maximum number of concurrent searches and other long operations. Each occupies a thread and the
/// disk.
const MAX_JOBS: usize = 8;

/// Maximum number of concurrent archives. Each occupies a thread that waits for its client.
const MAX_TREES: usize = 8;

/// Maximum number of watches. The kernel limits a user to 128.
const MAX_WATCHES: usize = 16;

/// Limits on concurrent operations.
pub(super) struct FileLimits {
    transfers: Arc<Semaphore>,
    jobs: Arc<Semaphore>,
    trees: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl Default for FileLimits {
    fn default() -> Self {
        let limit = |permits| Arc::new(Semaphore::new(permits));
        Self {
            transfers: limit(MAX_TRANSFERS),
            jobs: limit(MAX_JOBS),
            trees: limit(MAX_TREES),
            watches: limit(MAX_WATCHES),
        }
    }
}

/// The routes, which the table in `protocol::sandbox_api` documents.
pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route(
            "/v1/files",
            get(content::download)
                .put(content::upload)
                .delete(entries::remove),
        )
        .route("/v1/files/stat", get(entries::status))
        .route("/v1/files/list", get(entries::list))
        .route("/v1/files/move", post(entries::rename))
        .route("/v1/files/mkdir", post(entries::make_folder))
        .route("/v1/files/chmod", post(entries::change_mode))
        .route("/v1/files/tree", get(tree::download).put(tree::upload))
        .route("/v1/files/watch", get(watch::watch))
        .route("/v1/files/glob", get(search::glob))
        .route("/v1/files/grep", get(search::grep))
}

/// The part of the OpenAPI document about files.
#[cfg(test)]
#[derive(utoipa::OpenApi)]
#[openapi(paths(
    content::download,
    content::upload,
    entries::remove,
    entries::status,
    entries::list,
    entries::rename,
    entries::make_folder,
    entries::change_mode,
    tree::download,
    tree::upload,
    watch::watch,
    search::glob,
    search::grep
))]
pub(crate) struct Document;

impl Api {
    /// Resolves a path of a request.
    fn path(&self, path: &str) -> PathBuf {
        self.executor().files.absolute(path, &self.working_dir())
    }

    /// Runs a short operation.
    async fn on_files<T, F>(&self, job: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Files) -> Result<T, FileError> + Send + 'static,
    {
        let files = Arc::clone(&self.executor().files);
        let done = tokio::task::spawn_blocking(move || job(&files)).await;
        Ok(done.map_err(|_| ApiError::Failed)??)
    }

    /// Runs a long operation. It waits for its turn, and stops after `time` or if the client
    /// disconnects.
    async fn long_on_files<T, F>(&self, time: Duration, job: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Files, &StopSignal) -> Result<T, FileError> + Send + 'static,
    {
        let turn = Arc::clone(&self.0.file_limits.jobs).acquire_owned().await;
        let disconnected = CancellationToken::new();
        let stop = StopSignal::new(disconnected.clone(), time);
        let _cancelled_with_the_request = disconnected.drop_guard();
        self.on_files(move |files| {
            let _turn = turn;
            job(files, &stop)
        })
        .await
    }

    fn start_transfer(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.0.file_limits.transfers).try_acquire_owned();
        permit.map_err(|_| {
            FileError::TooMany {
                limit: MAX_TRANSFERS,
                what: "concurrent transfers",
            }
            .into()
        })
    }
}
