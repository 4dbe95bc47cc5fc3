//! Settings of the user, and tokens of git providers. No response contains a key or a token.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use protocol::client_api::{ChangeReply, GitTokensRequest, UserSettings, UserSettingsInfo};
use serde_json::{Map, Value};

use super::git;
use crate::error::ApiError;
use crate::extract::{JsonBody, RequestCaller, parse_value};
use crate::state::ServerState;

/// Maximum size of a body. All settings together are smaller.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

pub(super) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/settings", get(find).post(save))
        .route("/reset-settings", post(reset))
        .route("/add-git-providers", post(add_git_providers))
        .route("/unset-provider-tokens", post(unset_provider_tokens))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// Returns the settings, without keys.
#[utoipa::path(get, path = "/api/settings",
    responses((status = 200, description = "The settings", body = UserSettingsInfo)))]
pub(super) async fn find(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<UserSettingsInfo>, ApiError> {
    Ok(Json(state.profiles.settings(caller.user.as_ref()).await?))
}

/// Changes the settings that are given. Model, base URL and keys that are `null` keep their values.
#[utoipa::path(post, path = "/api/settings",
    request_body = UserSettings,
    responses((status = 200, description = "They are stored", body = ChangeReply)))]
pub(super) async fn save(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(body): JsonBody<Value>,
) -> Result<Json<ChangeReply>, ApiError> {
    let given = body
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    let settings: UserSettings = parse_value(body, "body")?;
    state
        .profiles
        .save_settings(caller.user.as_ref(), settings, &given)
        .await?;
    Ok(message("Settings stored"))
}

/// V0 has removed this route too.
#[utoipa::path(post, path = "/api/reset-settings", responses((status = 410, description = "Always")))]
pub(super) async fn reset() -> ApiError {
    ApiError::RemovedRoute
}

/// Stores tokens of git providers, if each provider accepts its token. Those of other providers
/// stay.
#[utoipa::path(post, path = "/api/add-git-providers",
    request_body = GitTokensRequest,
    responses((status = 200, description = "They are stored", body = ChangeReply)))]
pub(super) async fn add_git_providers(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(request): JsonBody<GitTokensRequest>,
) -> Result<Json<ChangeReply>, ApiError> {
    let changed = state
        .profiles
        .changed_git_tokens(caller.user.as_ref(), &request)
        .await?;
    let checked = git::with_tokens(&state, changed).check_tokens().await;
    checked.map_err(ApiError::from_token_check)?;
    state
        .profiles
        .add_git_tokens(caller.user.as_ref(), request)
        .await?;
    Ok(message("Git providers stored"))
}

/// Removes all tokens of git providers.
#[utoipa::path(post, path = "/api/unset-provider-tokens",
    responses((status = 200, description = "They are removed", body = ChangeReply)))]
pub(super) async fn unset_provider_tokens(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<ChangeReply>, ApiError> {
    state
        .profiles
        .remove_git_tokens(caller.user.as_ref())
        .await?;
    Ok(message("Git provider tokens removed"))
}

/// Returns V0's response to a change.
pub(super) fn message(text: &'static str) -> Json<ChangeReply> {
    Json(ChangeReply { message: text })
}
