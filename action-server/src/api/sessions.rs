//! `/v1/sessions`: lists and ends the sessions. An action starts the session that it names.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use protocol::sandbox_api::SessionInfo;

use super::Api;
use super::extract::SessionParameter;
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

/// `DELETE /v1/sessions/{name}`. The next action of this session gets a new shell, so this also
/// resets a session.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/sessions/{name}",
    params(
        ("name" = protocol::SessionName, Path, description = "Name of the session")
    ),
    responses((status = 204, description = "The shell was terminated"))
))]
pub(crate) async fn end(
    State(api): State<Api>,
    SessionParameter(name): SessionParameter,
) -> Result<StatusCode, ApiError> {
    match api.executor().sessions.end(&name).await {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::NoSuchSession(name)),
    }
}
