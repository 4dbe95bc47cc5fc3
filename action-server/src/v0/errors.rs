//! Refusals in V0's words: `{"detail"}`, with 422 also `errors`. Which status is decided where it is for everybody.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use crate::api::error::ErrorDetail;

/// Of everything, also the refusals of what comes before the handlers.
pub(crate) fn into_v0_error(response: Response) -> Response {
    let Some(ErrorDetail { detail }) = response.extensions().get() else { return response };
    let status = response.status();
    let body = match status {
        StatusCode::UNPROCESSABLE_ENTITY => json!({"detail": "Invalid request parameters", "errors": detail}),
        _ => json!({"detail": detail}),
    };
    (status, Json(body)).into_response()
}
