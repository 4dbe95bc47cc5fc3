//! Settings of the user, and tokens of git providers. No response contains a key or a token.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use protocol::client_api::{GitTokensRequest, UserSettings, UserSettingsInfo};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::{JsonBody, RequestCaller};
use crate::state::ServerState;

/// Maximum size of a body. All settings together are smaller.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;

pub(super) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/settings", get(find).post(save))
        .route("/add-git-providers", post(add_git_providers))
        .route("/unset-provider-tokens", post(unset_provider_tokens))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

async fn find(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<UserSettingsInfo>, ApiError> {
    Ok(Json(state.profiles.settings(caller.user.as_ref()).await?))
}

async fn save(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(settings): JsonBody<UserSettings>,
) -> Result<Json<Value>, ApiError> {
    state.profiles.save_settings(caller.user.as_ref(), settings).await?;
    Ok(message("Settings stored"))
}

async fn add_git_providers(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(request): JsonBody<GitTokensRequest>,
) -> Result<Json<Value>, ApiError> {
    state.profiles.add_git_tokens(caller.user.as_ref(), request).await?;
    Ok(message("Git providers stored"))
}

async fn unset_provider_tokens(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<Value>, ApiError> {
    state.profiles.remove_git_tokens(caller.user.as_ref()).await?;
    Ok(message("Git provider tokens removed"))
}

/// Returns V0's response to a change.
pub(super) fn message(text: &str) -> Json<Value> {
    Json(json!({"message": text}))
}
