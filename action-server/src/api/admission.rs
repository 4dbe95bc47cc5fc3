//! How many requests are answered at once. HTTP/2's own bound makes a client wait without a word; ours answers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;

use super::Api;
use crate::error::ApiError;

/// Every running action read by a dozen readers, and room; one costs tens of KiB. Below the streams that a connection
/// may open, so that it is this bound that is met.
pub(crate) const MAX_REQUESTS: usize = 1024;

/// A request counts until its answer was read or dropped.
pub(crate) async fn admit(State(api): State<Api>, request: Request, next: Next) -> Response {
    let Ok(permit) = Arc::clone(&api.0.requests).try_acquire_owned() else {
        return ApiError::TooManyRequests(MAX_REQUESTS).into_response();
    };
    let response = next.run(request).await;
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held_as_long_as_the_body = &permit;
            frame
        }))
    })
}
