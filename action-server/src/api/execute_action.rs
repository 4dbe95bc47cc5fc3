//! `POST /execute_action`, as V0's clients know it: `{"action": event}` in, the observation out. There is no id, so
//! nobody can attach; the action still goes on when its client is gone.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use protocol::{Action, Observation};
use serde_json::Value;
use uuid::Uuid;

use super::Api;
use super::extract::{JsonBody, action_request};
use crate::error::ApiError;
use crate::execute::is_performed;

#[cfg_attr(test, utoipa::path(
    post,
    path = "/execute_action",
    request_body(content = crate::openapi::Event),
    responses((status = 200, description = "An observation of OpenHands V0", body = Value))
))]
pub(crate) async fn execute_action(
    State(api): State<Api>,
    JsonBody(mut body): JsonBody,
) -> Result<Response, ApiError> {
    let event = match body.get_mut("action") {
        Some(event @ Value::Object(_)) => event.take(),
        Some(_) => return Err(ApiError::Malformed("field `action`: expected an object, the event".into())),
        None => return Err(ApiError::Malformed("missing field `action`".into())),
    };
    if let Some(observation) = not_here(&event) {
        return json_of(&observation);
    }
    let request = action_request(event)?;
    let id = format!("v0.{}", Uuid::now_v7()).try_into()?;
    let ending = api.executor().execute(id, request)?.ended().await;
    Ok(([(header::CONTENT_TYPE, "application/json")], ending.json()).into_response())
}

/// V0's clients take any status but 200 for a broken sandbox, also for a part that it does not have.
fn not_here(event: &Value) -> Option<Observation> {
    let kind = event.get("action")?.as_str()?;
    let is_elsewhere = Action::KINDS.contains(&kind) && !is_performed(kind);
    is_elsewhere.then(|| {
        Observation::error(format!("The action `{kind}` is not performed by this action server."), "")
    })
}

fn json_of(observation: &Observation) -> Result<Response, ApiError> {
    let json = serde_json::to_vec(observation).map_err(|error| {
        tracing::error!(%error, "encoding an observation");
        ApiError::Failed
    })?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
}
