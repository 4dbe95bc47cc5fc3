//! Secrets for the agent's commands. No response contains a value.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use http::StatusCode;
use http::request::Parts;
use protocol::client_api::{ChangeReply, NewSecret, SecretInfo, SecretList, SecretUpdate};

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
pub(crate) struct SecretPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for SecretPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Self(name))
            .map_err(|error| ApiError::invalid("id", error))
    }
}

/// Lists the secrets, without their values.
#[utoipa::path(get, path = "/api/secrets",
    responses((status = 200, description = "The secrets", body = SecretList)))]
pub(super) async fn list(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
) -> Result<Json<SecretList>, ApiError> {
    let list = state.profiles.secrets(caller.user.as_ref()).await?;
    let custom_secrets = list.secrets.into_iter().map(|secret| SecretInfo {
        name: secret.name,
        description: secret.description,
    });
    Ok(Json(SecretList {
        custom_secrets: custom_secrets.collect(),
    }))
}

/// Stores a secret.
#[utoipa::path(post, path = "/api/secrets",
    request_body = NewSecret,
    responses((status = 201, description = "It is stored", body = ChangeReply)))]
pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    JsonBody(secret): JsonBody<NewSecret>,
) -> Result<(StatusCode, Json<ChangeReply>), ApiError> {
    state
        .profiles
        .add_secret(caller.user.as_ref(), secret)
        .await?;
    Ok((StatusCode::CREATED, message("Secret created")))
}

/// Renames or describes a secret.
#[utoipa::path(put, path = "/api/secrets/{id}",
    params(("id" = String, Path, description = "The name of the secret")),
    request_body = SecretUpdate,
    responses((status = 200, description = "It is changed", body = ChangeReply)))]
pub(super) async fn update(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    SecretPath(name): SecretPath,
    JsonBody(update): JsonBody<SecretUpdate>,
) -> Result<Json<ChangeReply>, ApiError> {
    state
        .profiles
        .update_secret(caller.user.as_ref(), &name, update)
        .await?;
    Ok(message("Secret updated"))
}

/// Removes a secret.
#[utoipa::path(delete, path = "/api/secrets/{id}",
    params(("id" = String, Path, description = "The name of the secret")),
    responses((status = 200, description = "It is removed", body = ChangeReply)))]
pub(super) async fn remove(
    State(state): State<Arc<ServerState>>,
    RequestCaller(caller): RequestCaller,
    SecretPath(name): SecretPath,
) -> Result<Json<ChangeReply>, ApiError> {
    state
        .profiles
        .remove_secret(caller.user.as_ref(), &name)
        .await?;
    Ok(message("Secret removed"))
}
