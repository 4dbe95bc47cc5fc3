//! Errors of the transport as messages of JSON-RPC. rmcp writes them as plain texts, with status
//! 415 also for malformed messages.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method, StatusCode, header};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::extract::read_body;
use crate::json_values::check_count;
use crate::state::ServerState;
use crate::work::parse_body;

/// Maximum size of a text of rmcp.
const MAX_TEXT_BYTES: usize = 4 << 10;

/// Maximum number of values of a message: rmcp parses it on a thread that serves other requests
/// too, and tries several types.
const MAX_VALUES: usize = 10_000;

/// Codes of JSON-RPC.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const INTERNAL_ERROR: i64 = -32_603;

/// Answers what is no message, and replaces responses that are plain texts.
pub(super) async fn to_protocol_errors(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let has_json = is_json(request.headers());
    let request = if request.method() == Method::POST {
        let (parts, body) = match read_body(request).await {
            Ok(read) => read,
            Err(error) => {
                return to_response(error.status_code(), INVALID_REQUEST, &error.to_string());
            }
        };
        let check = move |body: &[u8]| {
            check_count("body", body, MAX_VALUES)?;
            Ok(!has_json || serde_json::from_slice::<IgnoredAny>(body).is_ok())
        };
        match parse_body(&state, body.clone(), check).await {
            Ok(true) => {}
            Ok(false) => {
                return to_response(StatusCode::BAD_REQUEST, PARSE_ERROR, "the body is not JSON");
            }
            Err(error) => {
                return to_response(error.status_code(), INVALID_REQUEST, &error.to_string());
            }
        }
        Request::from_parts(parts, Body::from(body))
    } else {
        request
    };
    let response = next.run(request).await;
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || is_json(response.headers()) {
        return response;
    }
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE && has_json {
        let text = "the body is not a message of the Model Context Protocol";
        return to_response(StatusCode::BAD_REQUEST, INVALID_REQUEST, text);
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_TEXT_BYTES)
        .await
        .unwrap_or_default();
    let code = if status.is_client_error() {
        INVALID_REQUEST
    } else {
        INTERNAL_ERROR
    };
    let replaced = to_response(status, code, &String::from_utf8_lossy(&text));
    let (replaced, body) = replaced.into_parts();
    // Keeps others, such as `allow`.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(replaced.headers);
    Response::from_parts(parts, body)
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let content_type = content_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    content_type.trim().eq_ignore_ascii_case("application/json")
}

/// Returns an error that answers no known message.
fn to_response(status: StatusCode, code: i64, message: &str) -> Response {
    let error = json!({"code": code, "message": message});
    (
        status,
        Json(json!({"jsonrpc": "2.0", "id": null, "error": error})),
    )
        .into_response()
}
