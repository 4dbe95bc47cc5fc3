//! Plain requests to the action server of a sandbox, as V0's clients send them: each over a stream of its own.
//!
//! Bodies pass through as they come, and the server bounds them. Ends with the answer, or when the client goes away.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::Shared;
use super::clients::Client;
use super::error::HostError;
use super::stream::open;
use crate::placement::chain;
use crate::remote::wire::API_KEY_HEADER;

/// Until the answer's head: V0's actions are answered when they have ended.
const ANSWER_WAIT: Duration = Duration::from_secs(3600);

/// What belongs to one connection, and the client's key, which is for us.
const NOT_PASSED_ON: [HeaderName; 7] = [
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
    let (in_use, server) = open(&shared, &sandbox, request.headers()).await?;
    Client::authenticate(request.extensions());
    *request.uri_mut() = below(request.uri(), &sandbox, &path)?;
    strip(request.headers_mut());
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("sandbox"));

    let stream = server.open().await?;
    let (mut requests, driver) = hyper::client::conn::http1::handshake::<_, Body>(TokioIo::new(stream))
        .await
        .map_err(|error| HostError::Broken(format!("speaking to the sandbox's server: {error}")))?;
    // Ends with the stream, and that with the answer's body or the client's.
    let stop = shared.stop.clone();
    shared.tasks.spawn(async move {
        if let Some(Err(error)) = stop.run_until_cancelled(driver).await {
            tracing::debug!(%error, "a connection to a sandbox's server broke");
        }
    });
    let answered = timeout(ANSWER_WAIT, requests.send_request(request)).await;
    let seconds = ANSWER_WAIT.as_secs();
    let answered = answered.map_err(|_| HostError::OutOfTime { what: "the sandbox's server", seconds })?;
    let answer = answered.map_err(|error| {
        HostError::Broken(format!("the sandbox's server does not answer: {}", chain(&error)))
    })?;
    let (mut head, body) = answer.into_parts();
    strip(&mut head.headers);
    // The sandbox is spoken to until the last byte.
    let body = body.map_frame(move |frame| {
        let _ = &in_use;
        frame.map_data(Bytes::from)
    });
    Ok(Response::from_parts(head, Body::new(body)))
}

/// The path below the sandbox's own, with its query, as it was sent.
fn below(uri: &Uri, sandbox: &str, decoded: &str) -> Result<Uri, HostError> {
    let whole = uri.path_and_query().map_or("", |path| path.as_str());
    let below = whole.strip_prefix("/sandboxes/").and_then(|rest| rest.strip_prefix(sandbox));
    let below = below.filter(|rest| rest.starts_with('/')).ok_or(HostError::NoSuchSandbox)?;
    below.parse().map_err(|_| HostError::Invalid(format!("there can be no path {decoded:?}")))
}

fn strip(headers: &mut HeaderMap) {
    for name in NOT_PASSED_ON {
        headers.remove(name);
    }
}
