//! The API of OpenHands V0: its routes, its error format, its rules for commands.
//!
//! It translates requests for the executor of the native API. It is only served if the program was
//! started as `action-server v0` (see [`launch`]).

mod archive;
mod download;
mod errors;
mod execute_action;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
pub(crate) mod launch;
mod list_files;
mod plugins;
mod query;
mod resources;
mod server_info;
mod transfer_error;
mod upload;
mod user;
mod web_pages;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{get, post};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::error::ApiError;
use crate::api::{Api, alive};
use crate::execute::Executor;
pub(crate) use errors::into_v0_error;
use resources::ResourceMeter;
pub(crate) use web_pages::is_from_web_page;

/// Maximum number of concurrent uploads and downloads. Each occupies a thread and the disk.
const MAX_TRANSFERS: usize = 4;

/// State of the handlers. Clones share it.
#[derive(Clone)]
struct V0(Arc<V0State>);

struct V0State {
    api: Api,
    working_dir: PathBuf,
    started: Instant,
    /// Time of the last action. Locked only to copy or replace it.
    last_action: Mutex<Instant>,
    meter: Arc<ResourceMeter>,
    transfers: Arc<Semaphore>,
}

/// The routes of V0.
pub(crate) fn router(api: Api, working_dir: PathBuf) -> Router {
    let now = Instant::now();
    let v0 = V0(Arc::new(V0State {
        api,
        working_dir,
        started: now,
        last_action: Mutex::new(now),
        meter: Arc::new(ResourceMeter::new()),
        transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
    }));
    Router::new()
        .route("/alive", get(alive::alive))
        .route("/server_info", get(server_info::server_info))
        .route("/execute_action", post(execute_action::execute_action))
        .route("/list_files", post(list_files::list_files))
        // Streams its body to the disk, with its own size limit.
        .route("/upload_file", post(upload::upload_file))
        .route("/download_files", get(download::download_files))
        .route("/update_mcp_server", post(plugins::update_mcp_server))
        .route("/vscode/connection_token", get(plugins::vscode_token))
        .fallback(async || ApiError::NoSuchRoute)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(v0)
}

impl V0 {
    fn executor(&self) -> &Executor {
        self.0.api.executor()
    }

    fn working_dir(&self) -> &Path {
        &self.0.working_dir
    }

    fn meter(&self) -> Arc<ResourceMeter> {
        Arc::clone(&self.0.meter)
    }

    /// Returns the uptime and the idle time.
    fn times(&self) -> (Duration, Duration) {
        let last = *self
            .0
            .last_action
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (self.0.started.elapsed(), last.elapsed())
    }

    /// Resets the idle time, now and when the guard is dropped.
    fn start_action(&self) -> ActionGuard {
        self.touch();
        ActionGuard(self.clone())
    }

    fn touch(&self) {
        *self
            .0
            .last_action
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits for a permit. Never `None`, because the semaphore is not closed.
    async fn transfer(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.transfers).acquire_owned().await.ok()
    }
}

impl FromRef<V0> for Api {
    fn from_ref(v0: &V0) -> Self {
        v0.0.api.clone()
    }
}

/// Resets the idle time when it is dropped.
struct ActionGuard(V0);

impl Drop for ActionGuard {
    fn drop(&mut self) {
        self.0.touch();
    }
}
