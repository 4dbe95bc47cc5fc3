//! `/v1/sessions`: which shells are open, and their end. An action begins the one that it names.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use protocol::sandbox_api::SessionInfo;

use super::Api;
use super::extract::Session;
use crate::api::error::ApiError;

/// `GET /v1/sessions`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/sessions",
    responses((status = 200, description = "The open shells", body = Vec<SessionInfo>))
))]
pub(crate) async fn list(State(api): State<Api>) -> Json<Vec<SessionInfo>> {
    Json(api.executor().sessions.list())
}

/// `DELETE /v1/sessions/{name}`. The next action that names it gets a new one: this is how a session is reset.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/sessions/{name}",
    params(
        ("name" = protocol::SessionName, Path, description = "Its name")
    ),
    responses((status = 204, description = "Its shell has ended"))
))]
pub(crate) async fn end(State(api): State<Api>, Session(name): Session) -> Result<StatusCode, ApiError> {
    match api.executor().sessions.end(&name).await {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::NoSuchSession(name)),
    }
}
