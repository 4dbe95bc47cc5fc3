//! Values of settings that clients can choose.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::state::ServerState;

pub(super) async fn models(State(state): State<Arc<ServerState>>) -> Json<Vec<String>> {
    Json(state.choices.models.clone())
}

pub(super) async fn agents(State(state): State<Arc<ServerState>>) -> Json<Vec<String>> {
    Json(state.choices.agents.clone())
}

pub(super) async fn security_analyzers(State(state): State<Arc<ServerState>>) -> Json<Vec<String>> {
    Json(state.choices.security_analyzers.clone())
}

/// The features of V0's page. Those of its paid service are off.
pub(super) async fn config() -> Json<Value> {
    Json(json!({
        "APP_MODE": "oss",
        "GITHUB_CLIENT_ID": "",
        "POSTHOG_CLIENT_KEY": "",
        "FEATURE_FLAGS": {"ENABLE_BILLING": false, "HIDE_LLM_SETTINGS": false},
    }))
}
