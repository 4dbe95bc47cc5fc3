//! Checks before routing: the key, the limit of concurrent requests, the limit of bodies, and
//! panics. One function for all of them, because each layer would cost every request time.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, Request};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;

use super::{Api, BODY_BYTES};
use crate::api::error::ApiError;
use crate::clients::ClientConnection;

/// Maximum number of concurrent requests: every running action read by a dozen clients, and some
/// more. Each costs tens of KiB. It is below HTTP/2's maximum number of streams, at which a client
/// would wait without a response.
pub(crate) const MAX_REQUESTS: usize = 1024;

/// Maximum number of concurrent DELETE requests, which are not counted above: it must be possible
/// to cancel an action or to kill a process at that limit.
pub(crate) const MAX_DELETES: usize = 64;

/// A response that is not longer is sent as a whole and is no longer counted.
const SHORT_BYTES: u64 = 64 << 10;

/// Passes a request on if it has the key, or none is set, and the limit of concurrent requests is
/// not reached.
pub(crate) async fn guard<F: Future<Output = Response>>(
    api: &Api,
    mut request: Request<Incoming>,
    next: impl FnOnce(Request<Incoming>) -> F,
) -> Response {
    let key = api.key();
    if key.is_some_and(|key| !key.is_in(request.headers())) {
        return ApiError::Forbidden.into_response();
    }
    let client = request
        .extensions()
        .get::<Arc<ClientConnection>>()
        .map(Arc::clone)
        .unwrap_or_default();
    client.admit();
    if key.is_some() || request.body().is_end_stream() {
        client.authenticate();
    }
    let (limit, max_requests) = match *request.method() {
        Method::DELETE => (&api.0.deletes, MAX_DELETES),
        _ => (&api.0.requests, MAX_REQUESTS),
    };
    let Ok(permit) = Arc::clone(limit).try_acquire_owned() else {
        return ApiError::TooManyRequests(max_requests).into_response();
    };
    DefaultBodyLimit::max(BODY_BYTES).apply(&mut request);
    // A panic fails this request only. Otherwise it would fail all requests of the connection.
    let result = AssertUnwindSafe(next(request)).catch_unwind().await;
    let response = result.unwrap_or_else(|_| ApiError::Failed.into_response());
    // If there is no key, a client is authenticated once it has sent a complete request.
    client.authenticate();
    response.map(|body| count_until_sent(body, permit))
}

/// Holds the permit until the response was sent or dropped.
fn count_until_sent(body: Body, permit: OwnedSemaphorePermit) -> Body {
    if body
        .size_hint()
        .upper()
        .is_some_and(|bytes| bytes <= SHORT_BYTES)
    {
        return body;
    }
    Body::new(body.map_frame(move |frame| {
        let _dropped_with_the_body = &permit;
        frame
    }))
}
