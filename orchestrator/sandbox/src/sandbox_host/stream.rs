//! Streams to the action server of a sandbox: opened by the provider, and joined to an upgraded request.
//!
//! What is spoken over one is between the client and the action server, which asks for the key again. Ends when either
//! side does, or the host.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use engine::sandbox::{ByteStream, SandboxError, ServerAccess};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper_util::rt::TokioIo;
use protocol::SandboxId;
use protocol::sandbox_api::KEY_HEADER;
use ring::digest::{SHA256, digest};
use secrecy::ExposeSecret;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::time::timeout;

use super::Shared;
use super::clients::Client;
use super::error::HostError;
use super::register::Use;
use crate::remote::wire::STREAM_PROTOCOL;

/// Through an engine it takes a tenth of a second; this is for hosts under load.
const OPEN_WAIT: Duration = Duration::from_secs(15);

/// The pieces in which bytes cross, each way.
const PIECE: usize = 64 << 10;

/// Answers 101 and carries bytes from then on.
pub(super) async fn stream(
    State(shared): State<Arc<Shared>>,
    Path(sandbox): Path<String>,
    mut request: Request,
) -> Result<Response, HostError> {
    let (in_use, server) = open(&shared, &sandbox, request.headers()).await?;
    Client::authenticate(request.extensions());
    let asked = request.headers().get(header::UPGRADE).map(HeaderValue::as_bytes);
    if !asked.is_some_and(|asked| asked.eq_ignore_ascii_case(STREAM_PROTOCOL.as_bytes())) {
        return Err(HostError::Invalid(format!(
            "a stream needs the headers Connection: upgrade and Upgrade: {STREAM_PROTOCOL}; does a proxy take them away?"
        )));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let mut server = server.open().await?;
    let stop = shared.stop.clone();
    shared.tasks.spawn(async move {
        let carry = async {
            match upgrade.await {
                // Broken off on either side: the other side sees its end, and nobody else is interested.
                Ok(client) => {
                    let mut client = TokioIo::new(client);
                    let _ = copy_bidirectional_with_sizes(&mut client, &mut server, PIECE, PIECE).await;
                }
                Err(error) => tracing::debug!(%error, "upgrading a request for a stream"),
            }
        };
        stop.run_until_cancelled(carry).await;
        drop(in_use);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(STREAM_PROTOCOL));
    Ok(response)
}

/// A sandbox's server, for whoever knows its key.
pub(super) struct Server(ServerAccess);

impl Server {
    /// Opens a stream to it, in bounded time.
    pub(super) async fn open(&self) -> Result<Box<dyn ByteStream>, HostError> {
        let opened = timeout(OPEN_WAIT, self.0.streams.open()).await;
        let seconds = OPEN_WAIT.as_secs();
        let opened = opened.map_err(|_| HostError::OutOfTime { what: "the sandbox's server", seconds })?;
        opened.map_err(|error| match error {
            SandboxError::Lost { detail } => HostError::Lost(detail),
            other => other.into(),
        })
    }
}

/// Looks at the key before anything is opened: an engine has work with each stream.
pub(super) async fn open(
    shared: &Shared,
    sandbox: &str,
    headers: &HeaderMap,
) -> Result<(Use, Server), HostError> {
    let sandbox: SandboxId = sandbox.parse().map_err(|_| HostError::NoSuchSandbox)?;
    let given = headers.get(KEY_HEADER).ok_or(HostError::ForbiddenSandbox)?;
    let access = shared.provider.server_access(&sandbox).await?;
    // Hashes are compared: how far two of them agree tells nothing of the key.
    let hash = |key: &[u8]| digest(&SHA256, key);
    if hash(given.as_bytes()).as_ref() != hash(access.key.expose_secret().as_bytes()).as_ref() {
        return Err(HostError::ForbiddenSandbox);
    }
    Ok((shared.register.begin_use(&sandbox)?, Server(access)))
}
