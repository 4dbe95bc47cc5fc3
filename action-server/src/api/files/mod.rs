//! `/v1/files…`: the files of the sandbox, by path. What blocks is done by threads of their own.

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
use crate::files::{FileError, Files, Stop, resolve};

/// Files on their way at once, in either direction; one costs two parts, half a MiB.
const MAX_TRANSFERS: usize = 64;

/// Searches and the like at once; each has a thread and a disk to itself.
const MAX_JOBS: usize = 8;

/// Folders on their way at once; each keeps a thread waiting for its client.
const MAX_TREES: usize = 8;

/// The kernel lets a user have 128 of them.
const MAX_WATCHES: usize = 16;

/// Bounds on what is done at once.
pub(super) struct Gates {
    transfers: Arc<Semaphore>,
    jobs: Arc<Semaphore>,
    trees: Arc<Semaphore>,
    watches: Arc<Semaphore>,
}

impl Default for Gates {
    fn default() -> Self {
        let gate = |places| Arc::new(Semaphore::new(places));
        Self {
            transfers: gate(MAX_TRANSFERS),
            jobs: gate(MAX_JOBS),
            trees: gate(MAX_TREES),
            watches: gate(MAX_WATCHES),
        }
    }
}

/// The routes; the table in `protocol::sandbox_api` says what they take and give.
pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/v1/files", get(content::download).put(content::upload).delete(entries::remove))
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

/// What of the document is about files.
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
    /// The path that a client means.
    fn path(&self, path: &str) -> PathBuf {
        resolve(path, &self.working_dir())
    }

    /// For what is short.
    async fn on_files<T, F>(&self, job: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Files) -> Result<T, FileError> + Send + 'static,
    {
        let files = Arc::clone(&self.executor().files);
        let done = tokio::task::spawn_blocking(move || job(&files)).await;
        Ok(done.map_err(|_| ApiError::Failed)??)
    }

    /// For what may be long: it waits for its turn and is asked to stop after `time`, or when its client goes away.
    async fn long_on_files<T, F>(&self, time: Duration, job: F) -> Result<T, ApiError>
    where
        T: Send + 'static,
        F: FnOnce(&Files, &Stop) -> Result<T, FileError> + Send + 'static,
    {
        let turn = Arc::clone(&self.0.gates.jobs).acquire_owned().await;
        let client_left = CancellationToken::new();
        let stop = Stop::new(client_left.clone(), time);
        let _goes_with_the_client = client_left.drop_guard();
        self.on_files(move |files| {
            let _turn = turn;
            job(files, &stop)
        })
        .await
    }

    fn begin_transfer(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let place = Arc::clone(&self.0.gates.transfers).try_acquire_owned();
        place.map_err(|_| FileError::TooMany { limit: MAX_TRANSFERS, what: "files are sent at once" }.into())
    }
}
