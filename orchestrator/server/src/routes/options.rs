//! Values of settings that clients can choose.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::state::ServerState;

/// Lists the configured models.
#[utoipa::path(get, path = "/api/options/models",
    responses((status = 200, description = "Names", body = Vec<String>)))]
pub(super) async fn models(State(state): State<Arc<ServerState>>) -> Json<Vec<String>> {
    Json(state.choices.models.clone())
}

/// Lists the agents that users can choose.
#[utoipa::path(get, path = "/api/options/agents",
    responses((status = 200, description = "Names", body = Vec<String>)))]
pub(super) async fn agents(State(state): State<Arc<ServerState>>) -> Json<Vec<String>> {
    Json(state.choices.agents.clone())
}

/// Lists the security analyzers that users can choose.
#[utoipa::path(get, path = "/api/options/security-analyzers",
    responses((status = 200, description = "Names", body = Vec<String>)))]
pub(super) async fn security_analyzers(State(state): State<Arc<ServerState>>) -> Json<Vec<String>> {
    Json(state.choices.security_analyzers.clone())
}

/// The features of V0's page. Those of its paid service are off.
#[utoipa::path(get, path = "/api/options/config",
    responses((status = 200, description = "The features", body = Object)))]
pub(super) async fn config() -> Json<Value> {
    Json(json!({
        "APP_MODE": "oss",
        "GITHUB_CLIENT_ID": "",
        "POSTHOG_CLIENT_KEY": "",
        "FEATURE_FLAGS": {"ENABLE_BILLING": false, "HIDE_LLM_SETTINGS": false},
    }))
}
