//! `POST /execute_action`, the route of V0's clients: `{"action": event}` in, the observation out.
//! Without an id, no client can attach. The action continues if its client disconnects.

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
    let event = take_event(body)?;
    if let Some(kind) = performed_elsewhere(&event) {
        let text = format!("The action `{kind}` is not performed by this action server.");
        return observation_response(&Observation::error(text, ""));
    }
    perform(api.executor(), action_request(event)?).await
}

/// Returns the event in the body.
pub(crate) fn take_event(mut body: Value) -> Result<Value, ApiError> {
    match body.get_mut("action") {
        Some(event @ Value::Object(_)) => Ok(event.take()),
        Some(_) => Err(ApiError::Malformed(
            "field `action`: expected an object, the event".into(),
        )),
        None => Err(ApiError::Malformed("missing field `action`".into())),
    }
}

/// Returns the kind of the event if the host performs it. V0's clients treat every status but 200
/// as a broken sandbox, so this is reported as an observation.
pub(crate) fn performed_elsewhere(event: &Value) -> Option<&str> {
    let kind = event.get("action")?.as_str()?;
    (Action::KINDS.contains(&kind) && !is_performed(kind)).then_some(kind)
}

/// Performs the action and responds with its observation.
pub(crate) async fn perform(
    executor: &Executor,
    request: ActionRequest,
) -> Result<Response, ApiError> {
    let id = format!("v0.{}", Uuid::now_v7()).try_into()?;
    let result = executor.execute(id, request)?.completed().await;
    Ok(([(header::CONTENT_TYPE, "application/json")], result.json()).into_response())
}

/// Responds with an observation that no action has produced.
pub(crate) fn observation_response(observation: &Observation) -> Result<Response, ApiError> {
    let json = serde_json::to_vec(observation).map_err(|error| {
        tracing::error!(%error, "cannot encode an observation");
        ApiError::Failed
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
