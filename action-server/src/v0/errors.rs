//! Errors in V0's format: `{"detail"}`, and for 422 also `errors`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;

use crate::api::error::ErrorDetail;

/// Converts any error response, including those from before the handlers.
pub(crate) fn into_v0_error(response: Response) -> Response {
    let Some(ErrorDetail { detail }) = response.extensions().get() else {
        return response;
    };
    let status = response.status();
    let body = match status {
        StatusCode::UNPROCESSABLE_ENTITY => {
            json!({"detail": "Invalid request parameters", "errors": detail})
        }
        _ => json!({"detail": detail}),
    };
    (status, Json(body)).into_response()
}
