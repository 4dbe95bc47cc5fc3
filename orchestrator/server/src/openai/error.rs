//! Errors in OpenAI's format.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::StatusCode;
use protocol::client_api::ErrorBody;
use serde::Serialize;
use utoipa::ToSchema;

/// Path whose errors have this format, as have those below it.
const FOLDER: &str = "/v1";

/// The body of an error below `/v1`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OpenAiErrorBody {
    error: OpenAiError,
}

/// An error as clients of OpenAI parse it.
#[derive(Debug, Serialize, ToSchema)]
struct OpenAiError {
    /// What is wrong, for people.
    message: String,
    /// The kind of error.
    r#type: &'static str,
    /// The field of the request that is invalid.
    param: Option<String>,
    /// A stable code.
    code: &'static str,
}

impl OpenAiErrorBody {
    pub(super) fn new(status: StatusCode, body: ErrorBody) -> Self {
        let ErrorBody {
            message,
            msg_id,
            field,
            ..
        } = body;
        Self {
            error: OpenAiError {
                message,
                r#type: error_type(status),
                param: field,
                code: msg_id,
            },
        }
    }
}

fn error_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// Replaces the bodies of all errors below `/v1`, also of those that were rejected before their
/// route.
pub(crate) async fn to_openai_errors(request: Request, next: Next) -> Response {
    let below = request.uri().path().strip_prefix(FOLDER);
    let is_openai = below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut response = next.run(request).await;
    if is_openai && let Some(body) = response.extensions_mut().remove::<ErrorBody>() {
        let body = OpenAiErrorBody::new(response.status(), body);
        *response.body_mut() = Body::from(serde_json::to_vec(&body).unwrap_or_default());
    }
    response
}
