//! `/v1/environment`: the variables of commands and processes that are started from then on. They
//! are write-only.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::Api;
use super::extract::JsonBody;
use crate::api::error::ApiError;

/// `PUT /v1/environment`.
#[cfg_attr(test, utoipa::path(
    put,
    path = "/v1/environment",
    request_body(
        content = BTreeMap<String, String>,
            description = "Names and values; they replace those that were set before"
    ),
    responses((status = 204, description = "The variables were set"))
))]
pub(crate) async fn set(
    State(api): State<Api>,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, ApiError> {
    api.0.parts.environment.set(variables(body)?)?;
    api.executor().sessions.restart_unused().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Parsed without serde, whose generated code would add some KiB to the binary.
fn variables(body: Value) -> Result<BTreeMap<String, String>, ApiError> {
    let Value::Object(object) = body else {
        return Err(ApiError::Malformed(
            "expected an object of names and values".into(),
        ));
    };
    let text = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        _ => Err(ApiError::Malformed(format!(
            "field `{name}`: expected a string"
        ))),
    };
    object.into_iter().map(text).collect()
}
