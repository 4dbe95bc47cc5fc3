//! The server's health and usage. These routes need no key.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::state::ServerState;

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

/// Returns uptime and idle time, in seconds, and the use of resources.
#[utoipa::path(get, path = "/server_info", security(()),
    responses((status = 200, description = "The use", body = Object)))]
pub(super) async fn server_info(State(state): State<Arc<ServerState>>) -> Json<Value> {
    let uptime = state.started_at.elapsed().as_secs_f64();
    let running = state.conversations.conversations().running().len();
    let idle_time = state.idle_time().as_secs_f64();
    Json(json!({"uptime": uptime, "idle_time": idle_time, "resources": {"running_conversations": running}}))
}
