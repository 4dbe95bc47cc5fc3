//! `/v1/actions/{id}`: begin or attach, attach, cancel, acknowledge. A reader that goes away takes nothing with it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use protocol::sandbox_api::{ActionRequest, FRAMES_MEDIA_TYPE};

use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::Api;
use super::extract::{After, Id, JsonBody, action_request};
use crate::error::ApiError;
use crate::ledger::{Entry, LedgerError, frames};

/// How long an answer waits for the first that can be told. Head, output and observation each written alone cost more than
/// most commands take.
pub(super) const SOON: Duration = Duration::from_millis(100);

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
pub(crate) async fn begin(
    State(api): State<Api>,
    Id(id): Id,
    After(after): After,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let request: ActionRequest = action_request(body)?;
    let entry = api.executor().execute(id, request)?;
    Ok(stream(entry, after).await)
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
    Id(id): Id,
    After(after): After,
) -> Result<Response, ApiError> {
    let entry = api.executor().ledger.find(id)?;
    Ok(stream(entry, after).await)
}

/// `DELETE`. What has ended, held or not, is as cancelled as it can be.
#[cfg_attr(test, utoipa::path(
    delete,
    path = "/v1/actions/{id}",
    params(
        ("id" = protocol::ActionId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "It ends"))
))]
pub(crate) async fn cancel(State(api): State<Api>, Id(id): Id) -> Result<StatusCode, ApiError> {
    match api.executor().ledger.find(id) {
        Ok(entry) => entry.cancel(),
        Err(LedgerError::Gone(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `POST …/acknowledge`. Not the same as a cancel, which must not throw away the observation of an action that has just
/// ended by itself.
#[cfg_attr(test, utoipa::path(
    post,
    path = "/v1/actions/{id}/acknowledge",
    params(
        ("id" = protocol::ActionId, Path, description = "Chosen by the client")
    ),
    responses((status = 204, description = "It is forgotten"))
))]
pub(crate) async fn acknowledge(State(api): State<Api>, Id(id): Id) -> Result<StatusCode, ApiError> {
    api.executor().ledger.acknowledge(id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn stream(entry: Arc<Entry>, after: u64) -> Response {
    // Either way the stream below tells all.
    let _: Result<(), Elapsed> = timeout(SOON, entry.news(after)).await;
    ([(header::CONTENT_TYPE, FRAMES_MEDIA_TYPE)], Body::from_stream(frames(entry, after))).into_response()
}
