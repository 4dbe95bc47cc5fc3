//! Secrets for the agent's commands. No response contains a value.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use protocol::client_api::{NewSecret, SecretInfo, SecretList, SecretUpdate};
use serde_json::Value;

use super::settings::{MAX_BODY_BYTES, message};
use crate::error::ApiError;
use crate::extract::{JsonBody, RequestCaller};
use crate::state::ServerState;

pub(super) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/secrets", get(list).post(create))
        .route("/secrets/{id}", put(update).delete(remove))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
}

/// The secret that the path names.
struct SecretPath(String);

impl<S: Send + Sync> FromRequestParts<S> for SecretPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name)).map_err(|error| ApiError::invalid("id", error))
    }
}

async fn list(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SecretList>, ApiError> {
    let profile = state.profiles.load(caller.user.as_ref()).await?;
    let secrets = profile.secrets.into_iter();
    let custom_secrets = secrets.map(|(name, secret)| SecretInfo { name, description: secret.description });
    Ok(Json(SecretList { custom_secrets: custom_secrets.collect() }))
}

async fn create(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(secret): JsonBody<NewSecret>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    state.profiles.add_secret(caller.user.as_ref(), secret).await?;
    Ok((StatusCode::CREATED, message("Secret created")))
}

async fn update(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    SecretPath(name): SecretPath,
    JsonBody(update): JsonBody<SecretUpdate>,
) -> Result<Json<Value>, ApiError> {
    state.profiles.update_secret(caller.user.as_ref(), &name, update).await?;
    Ok(message("Secret updated"))
}

async fn remove(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    SecretPath(name): SecretPath,
) -> Result<Json<Value>, ApiError> {
    state.profiles.remove_secret(caller.user.as_ref(), &name).await?;
    Ok(message("Secret removed"))
}
