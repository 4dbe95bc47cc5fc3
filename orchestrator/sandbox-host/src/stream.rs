//! Streams to the action server of a sandbox: opened by the provider, and connected to an upgraded
//! request.
//!
//! The host only forwards the bytes. The action server authenticates the client again. A stream
//! ends when either side closes it, or the host shuts down.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use engine::sandbox::{ByteStream, SandboxError, ServerAccess};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper_util::rt::TokioIo;
use protocol::SandboxId;
use protocol::runtime_api::STREAM_PROTOCOL;
use protocol::sandbox_api::KEY_HEADER;
use ring::digest::{SHA256, digest};
use secrecy::ExposeSecret;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::time::timeout;

use super::Shared;
use super::clients::Client;
use super::error::HostError;
use super::registry::SandboxUse;

/// An engine needs 0.1 s to open a stream. The timeout allows for hosts under load.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// The buffer size of each direction.
const BUFFER_BYTES: usize = 64 << 10;

/// Responds with 101, and forwards bytes from then on.
pub(super) async fn stream(
    State(shared): State<Arc<Shared>>,
    Path(sandbox): Path<String>,
    mut request: Request,
) -> Result<Response, HostError> {
    let (in_use, server) = authorize(&shared, &sandbox, request.headers()).await?;
    Client::authenticate(request.extensions());
    let upgrade = request
        .headers()
        .get(header::UPGRADE)
        .map(HeaderValue::as_bytes);
    if !upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(STREAM_PROTOCOL.as_bytes())) {
        return Err(HostError::Invalid(format!(
            "a stream requires the headers Connection: upgrade and Upgrade: {STREAM_PROTOCOL}; check whether a proxy removes them"
        )));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let mut server = server.open().await?;
    let stop = shared.stop.clone();
    shared.tasks.spawn(async move {
        let forward = async {
            match upgrade.await {
                // If one side breaks, the other side notices the end of its stream.
                Ok(client) => {
                    let mut client = TokioIo::new(client);
                    let _ = copy_bidirectional_with_sizes(
                        &mut client,
                        &mut server,
                        BUFFER_BYTES,
                        BUFFER_BYTES,
                    )
                    .await;
                }
                Err(error) => tracing::debug!(%error, "cannot upgrade a request"),
            }
        };
        stop.run_until_cancelled(forward).await;
        drop(in_use);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
        .headers_mut()
        .insert(header::UPGRADE, HeaderValue::from_static(STREAM_PROTOCOL));
    Ok(response)
}

/// The action server of a sandbox, for a client that has its key.
pub(super) struct AuthorizedServer(ServerAccess);

impl AuthorizedServer {
    /// Opens a stream, with a timeout.
    pub(super) async fn open(&self) -> Result<Box<dyn ByteStream>, HostError> {
        let opened = timeout(OPEN_TIMEOUT, self.0.streams.open()).await;
        let seconds = OPEN_TIMEOUT.as_secs();
        let opened = opened.map_err(|_| HostError::Timeout {
            what: "the sandbox's server",
            seconds,
        })?;
        opened.map_err(|error| match error {
            SandboxError::Lost { detail } => HostError::Lost(detail),
            other => other.into(),
        })
    }
}

/// Checks the key before a stream is opened, which is expensive for an engine.
pub(super) async fn authorize(
    shared: &Shared,
    sandbox: &str,
    headers: &HeaderMap,
) -> Result<(SandboxUse, AuthorizedServer), HostError> {
    let sandbox: SandboxId = sandbox.parse().map_err(|_| HostError::NoSuchSandbox)?;
    let given = headers.get(KEY_HEADER).ok_or(HostError::ForbiddenSandbox)?;
    let access = shared.provider.server_access(&sandbox).await?;
    // Compares hashes, so that the time of the comparison reveals nothing about the key.
    let hash = |key: &[u8]| digest(&SHA256, key);
    if hash(given.as_bytes()).as_ref() != hash(access.key.expose_secret().as_bytes()).as_ref() {
        return Err(HostError::ForbiddenSandbox);
    }
    Ok((
        shared.registry.start_use(&sandbox)?,
        AuthorizedServer(access),
    ))
}
