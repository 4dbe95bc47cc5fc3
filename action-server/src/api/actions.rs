//! `/v1/actions/{id}`: start or attach, attach, cancel, acknowledge. A lost connection does not
//! affect the action.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use protocol::sandbox_api::ActionRequest;

use super::Api;
use super::extract::{AfterParameter, IdParameter, JsonBody, action_request};
use super::framed_response::framed_response;
use crate::api::error::ApiError;
use crate::ledger::{ActionRecord, LedgerError, frames};

/// `POST`.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/actions/{id}",
    params(
        ("id" = protocol::ActionId, Path, description = "Chosen by the client"),
        ("after" = Option<u64>, Query, description = "How many bytes of the output the client has")
    ),
    request_body = ActionRequest,
    responses(
        (status = 200, description = "Frames, until the observation",
            body = crate::openapi::Bytes, content_type = "application/vnd.glovebox.frames")
    )
))]
pub(crate) async fn start(
    State(api): State<Api>,
    IdParameter(id): IdParameter,
    AfterParameter(after): AfterParameter,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let request: ActionRequest = action_request(body)?;
    let entry = api.executor().execute(id, request)?;
    Ok(stream(&api, entry, after).await)
}

/// `GET`.
#[cfg_attr(test, utoipa::path(
    get,
    path = "/v1/actions/{id}",
    params(
        ("id" = protocol::ActionId, Path, description = "Chosen by the client"),
        ("after" = Option<u64>, Query, description = "How many bytes of the output the client has")
    ),
    responses(
        (status = 200, description = "Frames, until the observation",
            body = crate::openapi::Bytes, content_type = "application/vnd.glovebox.frames")
    )
))]
pub(crate) async fn attach(
    State(api): State<Api>,
    IdParameter(id): IdParameter,
    AfterParameter(after): AfterParameter,
) -> Result<Response, ApiError> {
    let entry = api.executor().ledger.find(id)?;
    Ok(stream(&api, entry, after).await)
}

/// `DELETE`. No effect on an action that has completed, even if it is no longer retained.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/actions/{id}",
    params(
        ("id" = protocol::ActionId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "The action is cancelled"))
))]
pub(crate) async fn cancel(
    State(api): State<Api>,
    IdParameter(id): IdParameter,
) -> Result<StatusCode, ApiError> {
    match api.executor().ledger.find(id) {
        Ok(entry) => entry.cancel(),
        Err(LedgerError::Gone(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/acknowledge`. Differs from a cancel, which must not drop the observation of an action
/// that has just completed.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/actions/{id}/acknowledge",
    params(
        ("id" = protocol::ActionId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "The action was discarded"))
))]
pub(crate) async fn acknowledge(
    State(api): State<Api>,
    IdParameter(id): IdParameter,
) -> Result<StatusCode, ApiError> {
    api.executor().ledger.acknowledge(id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stream(api: &Api, entry: Arc<ActionRecord>, after: u64) -> Response {
    let frames = frames(Arc::clone(&entry), after);
    framed_response(
        &api.0.ticks,
        entry.completed_or_large(),
        || entry.is_ready(after),
        frames,
    )
    .await
}
