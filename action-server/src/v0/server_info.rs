//! `GET /server_info`: uptime, idle time and resource usage. Does not require the key.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::V0;
use super::resources::Resources;
use crate::api::error::ApiError;

/// Times are in seconds.
#[derive(Debug, Serialize)]
pub(super) struct ServerInfo {
    uptime: f64,
    /// Since the last action.
    idle_time: f64,
    resources: Resources,
}

pub(super) async fn server_info(State(v0): State<V0>) -> Result<Json<ServerInfo>, ApiError> {
    let (uptime, idle_time) = v0.times();
    let meter = v0.meter();
    // Blocking, because a network file system may be slow to report its usage.
    let resources = tokio::task::spawn_blocking(move || meter.read())
        .await
        .map_err(|_| ApiError::Failed)?;
    Ok(Json(ServerInfo {
        uptime: uptime.as_secs_f64(),
        idle_time: idle_time.as_secs_f64(),
        resources,
    }))
}
