//! The server as OpenHands V0's clients know it: their routes, their words for errors, their rules about commands.
//!
//! It translates, and shares the executor with the native API. Nothing here is served unless the program was started as
//! `action-server v0` (see [`launch`]). What each route takes and gives: `reference/v0-action-server.md`.

mod archive;
mod commands;
mod download;
mod errors;
mod execute_action;
#[cfg(fuzzing)]
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
use resources::Meter;
pub(crate) use web_pages::is_from_web_page;

/// Uploads and downloads at once: each keeps a thread and the disk busy.
const MAX_TRANSFERS: usize = 4;

/// What the handlers share. Cloning shares it.
#[derive(Clone)]
struct V0(Arc<Shared>);

struct Shared {
    api: Api,
    working_dir: PathBuf,
    begun: Instant,
    /// Only ever set; the section is one assignment.
    last_action: Mutex<Instant>,
    meter: Arc<Meter>,
    transfers: Arc<Semaphore>,
}

/// V0's whole API.
pub(crate) fn router(api: Api, working_dir: PathBuf) -> Router {
    let now = Instant::now();
    let v0 = V0(Arc::new(Shared {
        api,
        working_dir,
        begun: now,
        last_action: Mutex::new(now),
        meter: Arc::new(Meter::new()),
        transfers: Arc::new(Semaphore::new(MAX_TRANSFERS)),
    }));
    Router::new()
        .route("/alive", get(alive::alive))
        .route("/server_info", get(server_info::server_info))
        .route("/execute_action", post(execute_action::execute_action))
        .route("/list_files", post(list_files::list_files))
        // Its body goes to disk as it comes, and has a bound of its own.
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

    fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.0.meter)
    }

    /// How long it has been up, and idle.
    fn times(&self) -> (Duration, Duration) {
        let last = *self.0.last_action.lock().unwrap_or_else(PoisonError::into_inner);
        (self.0.begun.elapsed(), last.elapsed())
    }

    /// An action is asked for now, and again when it has its answer.
    fn acting(&self) -> Acting {
        self.touch();
        Acting(self.clone())
    }

    fn touch(&self) {
        *self.0.last_action.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Waits until there are fewer; nothing only if the server could not count them, which it can.
    async fn transfer(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.transfers).acquire_owned().await.ok()
    }
}

impl FromRef<V0> for Api {
    fn from_ref(v0: &V0) -> Self {
        v0.0.api.clone()
    }
}

/// Idleness begins when this is dropped.
struct Acting(V0);

impl Drop for Acting {
    fn drop(&mut self) {
        self.0.touch();
    }
}
