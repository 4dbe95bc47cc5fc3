//! The span of each request, and its id, with which a client can name a request to the operator.

use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use tower_http::classify::ServerErrorsFailureClass;
use tracing::Span;
use uuid::Uuid;

use crate::client_address::Client;
use crate::other_hosts;

/// The header of a response with the id of its request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request. Not the client's choice, because an operator searches for it.
#[derive(Debug, Clone)]
struct RequestId(String);

/// Assigns an id to a request. A response of another host, or of a program in a sandbox, may have
/// one already.
pub(crate) async fn assign_id(mut request: Request, next: Next) -> Response {
    let id = Uuid::now_v7().simple().to_string();
    let header = HeaderValue::from_str(&id);
    request.extensions_mut().insert(RequestId(id));
    let mut response = next.run(request).await;
    if let Ok(header) = header {
        response.headers_mut().entry(REQUEST_ID).or_insert(header);
    }
    response
}

/// Creates the span of a request. The query may hold a key, so the span has only the path.
pub(crate) fn span<B>(request: &http::Request<B>) -> Span {
    let (uri, extensions) = (request.uri(), request.extensions());
    tracing::info_span!(
        "request",
        id = extensions.get::<RequestId>().map(|id| display(&id.0)),
        method = %request.method(),
        path = uri.path(),
        conversation = other_hosts::conversation(uri).map(display),
        client = Client::find(extensions).map(|client| display(client.address)),
    )
}

/// Logs a failed request. Only 500 is a fault of the server: a program in a sandbox does not
/// respond (502), or the store is unavailable (503).
pub(crate) fn on_failure(failure: ServerErrorsFailureClass, latency: Duration, _: &Span) {
    let is_own = !matches!(
        failure,
        ServerErrorsFailureClass::StatusCode(status) if status != StatusCode::INTERNAL_SERVER_ERROR
    );
    if is_own {
        tracing::error!(%failure, ?latency, "the request failed");
    } else {
        tracing::debug!(%failure, ?latency, "the request failed");
    }
}
