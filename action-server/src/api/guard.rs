//! What stands between the routes and every request: the key, the bound on requests at once, the bound on bodies, a net
//! under panics. One step for all of it, because each costs every request.

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
use crate::clients::Client;

/// Every running action read by a dozen readers, and room; one costs tens of KiB. HTTP/2's own bound makes a client wait
/// without a word, ours answers: it is below the streams that a connection may open, so that it is the one that is met.
pub(crate) const MAX_REQUESTS: usize = 1024;

/// How many endings beside them: what ends an action or a process has to come through when all the others are taken.
pub(crate) const MAX_ENDINGS: usize = 64;

/// An answer that is this short is handed over as a whole, and counts no longer.
const SHORT_BYTES: u64 = 64 << 10;

/// Lets a request pass that knows the key (or any where there is none), while not too many are answered.
pub(crate) async fn guard<F: Future<Output = Response>>(
    api: &Api,
    mut request: Request<Incoming>,
    next: impl FnOnce(Request<Incoming>) -> F,
) -> Response {
    let key = api.key();
    if key.is_some_and(|key| !key.is_in(request.headers())) {
        return ApiError::Forbidden.into_response();
    }
    let client = request.extensions().get::<Arc<Client>>().map(Arc::clone).unwrap_or_default();
    client.admit();
    if key.is_some() || request.body().is_end_stream() {
        client.authenticate();
    }
    let (places, most) = match *request.method() {
        Method::DELETE => (&api.0.endings, MAX_ENDINGS),
        _ => (&api.0.requests, MAX_REQUESTS),
    };
    let Ok(permit) = Arc::clone(places).try_acquire_owned() else {
        return ApiError::TooManyRequests(most).into_response();
    };
    DefaultBodyLimit::max(BODY_BYTES).apply(&mut request);
    // A panic is a fault of ours, but it is this request's: without this it would end every request of the connection.
    let answered = AssertUnwindSafe(next(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| ApiError::Failed.into_response());
    // If there is no key, a client counts as authenticated when one of its requests was whole.
    client.authenticate();
    response.map(|body| counted(body, permit))
}

/// A request counts until its answer was read or dropped.
fn counted(body: Body, permit: OwnedSemaphorePermit) -> Body {
    if body.size_hint().upper().is_some_and(|bytes| bytes <= SHORT_BYTES) {
        return body;
    }
    Body::new(body.map_frame(move |frame| {
        let _held_as_long_as_the_body = &permit;
        frame
    }))
}
