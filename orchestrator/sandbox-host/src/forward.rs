//! Requests of V0's clients to the action server of a sandbox, each over a stream of its own.
//!
//! Bodies are streamed; the action server limits their size. A request ends with its response, or
//! when the client disconnects.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use protocol::runtime_api::API_KEY_HEADER;
use tokio::time::timeout;

use super::Shared;
use super::clients::Client;
use super::error::HostError;
use super::stream::authorize;
use engine::errors::format_chain;

/// Timeout for the head of a response. V0's actions are answered when they have completed.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Hop-by-hop headers, and the client's key, which is for this host only.
const NOT_FORWARDED: [HeaderName; 7] = [
    header::CONNECTION,
    header::UPGRADE,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static(API_KEY_HEADER),
];

pub(super) async fn forward(
    State(shared): State<Arc<Shared>>,
    Path((sandbox, path)): Path<(String, String)>,
    mut request: Request,
) -> Result<Response, HostError> {
    let (in_use, server) = authorize(&shared, &sandbox, request.headers()).await?;
    Client::authenticate(request.extensions());
    *request.uri_mut() = path_in_sandbox(request.uri(), &sandbox, &path)?;
    remove_headers(request.headers_mut());
    request
        .headers_mut()
        .insert(header::HOST, HeaderValue::from_static("sandbox"));

    let stream = server.open().await?;
    let (mut sender, driver) =
        hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream))
            .await
            .map_err(|error| {
                HostError::BadGateway(format!("cannot connect to the sandbox's server: {error}"))
            })?;
    // Ends with the stream, which ends with the body of the response or when the client
    // disconnects.
    let stop = shared.stop.clone();
    shared.tasks.spawn(async move {
        if let Some(Err(error)) = stop.run_until_cancelled(driver).await {
            tracing::debug!(%error, "the connection to a sandbox's server broke");
        }
    });
    let response = timeout(RESPONSE_TIMEOUT, sender.send_request(request)).await;
    let seconds = RESPONSE_TIMEOUT.as_secs();
    let response = response.map_err(|_| HostError::Timeout {
        what: "the sandbox's server",
        seconds,
    })?;
    let response = response.map_err(|error| {
        HostError::BadGateway(format!(
            "the sandbox's server does not respond: {}",
            format_chain(&error)
        ))
    })?;
    let (mut head, body) = response.into_parts();
    remove_headers(&mut head.headers);
    // The sandbox is in use until the last byte.
    let body = body.map_frame(move |frame| {
        let _ = &in_use;
        frame.map_data(Bytes::from)
    });
    Ok(Response::from_parts(head, Body::new(body)))
}

/// Returns the path and query below the sandbox's own path, as they were sent.
fn path_in_sandbox(uri: &Uri, sandbox: &str, decoded: &str) -> Result<Uri, HostError> {
    let whole = uri.path_and_query().map_or("", |path| path.as_str());
    let below = whole
        .strip_prefix("/sandboxes/")
        .and_then(|rest| rest.strip_prefix(sandbox));
    let below = below
        .filter(|rest| rest.starts_with('/'))
        .ok_or(HostError::NoSuchSandbox)?;
    below
        .parse()
        .map_err(|_| HostError::Invalid(format!("the path {decoded:?} is invalid")))
}

fn remove_headers(headers: &mut HeaderMap) {
    for name in NOT_FORWARDED {
        headers.remove(name);
    }
}
