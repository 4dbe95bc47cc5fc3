//! `POST /execute_action`, as V0's clients know it: `{"action": event}` in, the observation out. There is no id, so
//! nobody can attach; the action still goes on when its client is gone.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use protocol::sandbox_api::ActionRequest;
use protocol::{Action, Observation};
use serde_json::Value;
use uuid::Uuid;

use super::Api;
use super::extract::{JsonBody, action_request};
use crate::api::error::ApiError;
use crate::execute::{Executor, is_performed};

#[cfg_attr(test, utoipa::path(
    post,
    path = "/execute_action",
    request_body(content = crate::openapi::Event),
    responses((status = 200, description = "An observation of OpenHands V0", body = Value))
))]
pub(crate) async fn execute_action(
    State(api): State<Api>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let event = event_of(body)?;
    if let Some(kind) = performed_elsewhere(&event) {
        let text = format!("The action `{kind}` is not performed by this action server.");
        return observed(&Observation::error(text, ""));
    }
    perform(api.executor(), action_request(event)?).await
}

/// The event in the body.
pub(crate) fn event_of(mut body: Value) -> Result<Value, ApiError> {
    match body.get_mut("action") {
        Some(event @ Value::Object(_)) => Ok(event.take()),
        Some(_) => Err(ApiError::Malformed("field `action`: expected an object, the event".into())),
        None => Err(ApiError::Malformed("missing field `action`".into())),
    }
}

/// The event's kind, if another part than this performs such. V0's clients take any status but 200 for a broken sandbox,
/// so that is told by an observation.
pub(crate) fn performed_elsewhere(event: &Value) -> Option<&str> {
    let kind = event.get("action")?.as_str()?;
    (Action::KINDS.contains(&kind) && !is_performed(kind)).then_some(kind)
}

/// Performs the action to its end, which is the answer.
pub(crate) async fn perform(executor: &Executor, request: ActionRequest) -> Result<Response, ApiError> {
    let id = format!("v0.{}", Uuid::now_v7()).try_into()?;
    let ending = executor.execute(id, request)?.completed().await;
    Ok(([(header::CONTENT_TYPE, "application/json")], ending.json()).into_response())
}

/// An answer without an action.
pub(crate) fn observed(observation: &Observation) -> Result<Response, ApiError> {
    let json = serde_json::to_vec(observation).map_err(|error| {
        tracing::error!(%error, "encoding an observation");
        ApiError::Failed
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
