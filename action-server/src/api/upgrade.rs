//! Turns a request into a stream of bytes: an extended CONNECT of HTTP/2 (any `:protocol`), or an
//! upgrade of HTTP/1.1 (any `Upgrade`).

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::upgrade::OnUpgrade;

use crate::api::error::ApiError;

/// Returns the stream, which is ready after the response was sent, and the response.
pub(super) fn upgrade(mut request: Request) -> Result<(OnUpgrade, Response), ApiError> {
    let protocol = request.headers().get(header::UPGRADE).cloned();
    let is_connect = request.method() == Method::CONNECT;
    if !is_connect && protocol.is_none() {
        return Err(ApiError::NoUpgrade);
    }
    let upgrade = request
        .extensions_mut()
        .remove::<OnUpgrade>()
        .ok_or(ApiError::NoUpgrade)?;
    if is_connect {
        return Ok((upgrade, StatusCode::OK.into_response()));
    }
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
        .headers_mut()
        .extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
    Ok((upgrade, response))
}
