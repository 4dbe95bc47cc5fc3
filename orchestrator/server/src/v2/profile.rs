//! What the calling user can choose, and the user's settings and secrets. No response has the value
//! of a key or of a secret.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use http::StatusCode;
use protocol::client_api::v2::profile::{
    OfferedAgents, OfferedModels, SecretEntryList, SetSecret, SettingsChange,
};
use protocol::client_api::{UserSettings, UserSettingsInfo};

use crate::error::ApiError;
use crate::extract::{JsonBody, RequestCaller};
use crate::routes::secrets::SecretPath;
use crate::routes::settings::MAX_BODY_BYTES;
use crate::state::ServerState;

pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v2/models", get(models))
        .route("/v2/agents", get(agents))
        .route("/v2/settings", get(settings).patch(change_settings))
        .route("/v2/secrets", get(secrets))
        .route("/v2/secrets/{id}", put(set_secret).delete(remove_secret))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// Lists the models that users can choose.
#[utoipa::path(get, path = "/api/v2/models",
    responses((status = 200, description = "The models", body = OfferedModels)))]
pub(crate) async fn models(State(state): State<Arc<ServerState>>) -> Json<OfferedModels> {
    Json(OfferedModels {
        models: state.choices.models.clone(),
    })
}

/// Lists the agents that users can choose.
#[utoipa::path(get, path = "/api/v2/agents",
    responses((status = 200, description = "The agents", body = OfferedAgents)))]
pub(crate) async fn agents(State(state): State<Arc<ServerState>>) -> Json<OfferedAgents> {
    Json(OfferedAgents {
        agents: state.choices.agents.clone(),
    })
}

/// Returns the settings of the user, without keys. 404 if none are stored.
#[utoipa::path(get, path = "/api/v2/settings",
    responses((status = 200, description = "The settings", body = UserSettingsInfo)))]
pub(crate) async fn settings(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<UserSettingsInfo>, ApiError> {
    Ok(Json(state.profiles.settings(caller.user.as_ref()).await?))
}

/// Changes the settings that are given. Model, base URL and keys that are `null` keep their values.
#[utoipa::path(patch, path = "/api/v2/settings",
    request_body = UserSettings,
    responses((status = 204, description = "They are stored")))]
pub(crate) async fn change_settings(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(change): JsonBody<SettingsChange>,
) -> Result<StatusCode, ApiError> {
    let user = caller.user.as_ref();
    state.profiles.change_settings(user, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the secrets of the user, without their values.
#[utoipa::path(get, path = "/api/v2/secrets",
    responses((status = 200, description = "The secrets", body = SecretEntryList)))]
pub(crate) async fn secrets(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SecretEntryList>, ApiError> {
    Ok(Json(state.profiles.secrets(caller.user.as_ref()).await?))
}

/// Stores a secret. One of the same name is replaced.
#[utoipa::path(put, path = "/api/v2/secrets/{id}",
    params(("id" = String, Path, description = "The name of the secret")),
    request_body = SetSecret,
    responses((status = 204, description = "It is stored")))]
pub(crate) async fn set_secret(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    SecretPath(name): SecretPath,
    JsonBody(secret): JsonBody<SetSecret>,
) -> Result<StatusCode, ApiError> {
    let user = caller.user.as_ref();
    state.profiles.set_secret(user, &name, secret).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a secret.
#[utoipa::path(delete, path = "/api/v2/secrets/{id}",
    params(("id" = String, Path, description = "The name of the secret")),
    responses((status = 204, description = "It is removed")))]
pub(crate) async fn remove_secret(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    SecretPath(name): SecretPath,
) -> Result<StatusCode, ApiError> {
    let user = caller.user.as_ref();
    state.profiles.remove_secret(user, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
