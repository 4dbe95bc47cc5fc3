//! The server's health and usage. These routes need no key.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use conversations::ConversationsError;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::error::{ApiError, StoreProblem};
use crate::resources::Resources;
use crate::state::ServerState;

/// Time for the event store to respond.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reports that the server responds.
#[utoipa::path(get, path = "/alive", security(()),
    responses((status = 200, description = "It does", body = Object)))]
pub(super) async fn alive() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Reports that the server responds.
#[utoipa::path(get, path = "/health", security(()),
    responses((status = 200, description = "It does", body = String, content_type = "application/json")))]
pub(super) async fn health() -> Json<&'static str> {
    Json("OK")
}

/// Reports whether the server can serve conversations: its event store and its place of
/// blobs can be written and read within a second, and it is not shutting down.
#[utoipa::path(get, path = "/ready", security(()),
    responses((status = 200, description = "It can", body = Object),
        (status = 503, description = "It cannot, with the reason's code", body = protocol::client_api::ErrorBody)))]
pub(super) async fn ready(State(state): State<Arc<ServerState>>) -> Result<Json<Value>, ApiError> {
    if state.streams.is_cancelled() {
        return Err(ConversationsError::ShuttingDown.into());
    }
    match state.store_check.get(check_store(&state)).await {
        None => Ok(Json(json!({"status": "ok"}))),
        Some(problem) => Err(ApiError::NotReady(problem)),
    }
}

/// Returns why the store cannot be used. `None` if it can.
async fn check_store(state: &ServerState) -> Option<StoreProblem> {
    match timeout(
        STORE_TIMEOUT,
        state.conversations.conversations().check_store(),
    )
    .await
    {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the store cannot be used"
            );
            Some(ApiError::from(error).store_problem())
        }
        Err(_) => Some(StoreProblem::Unavailable),
    }
}

/// Returns uptime and idle time, in seconds, and the use of resources.
#[utoipa::path(get, path = "/server_info", security(()),
    responses((status = 200, description = "The use", body = Object)))]
pub(super) async fn server_info(State(state): State<Arc<ServerState>>) -> Json<Value> {
    let uptime = state.started_at.elapsed().as_secs_f64();
    let idle_time = state.idle_time().as_secs_f64();
    let resources = state.resources.get(read_resources(&state)).await;
    Json(json!({"uptime": uptime, "idle_time": idle_time, "resources": resources}))
}

async fn read_resources(state: &ServerState) -> Resources {
    let meter = state.resource_meter.clone();
    // Blocking, because a network file system may be slow to report its usage.
    spawn_blocking(move || meter.read())
        .await
        .unwrap_or_default()
}
