//! Connections to servers.
//!
//! Each transport provides a stream of messages. A server that is a program also has a [`ServerProgram`], which stops it, also
//! when it is dropped.

mod host;
mod http;
mod sandbox;
mod sse;
mod tail;
mod unanswered_limit;

use std::sync::Arc;

use engine::sandbox::Sandbox;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpError};
use rmcp::{ClientHandler, RoleClient};

use crate::config::{McpServer, Transport};

pub(crate) use host::HostEnvironment;

/// Maximum size of a message of a server, in bytes. More than a result with the maximum of images.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Error of connecting to a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot start {command}: {source}; check `command` in its configuration")]
    Start { command: String, source: std::io::Error },
    #[error("there is no sandbox for it yet")]
    NoSandbox,
    #[error("{0}")]
    Http(#[from] http::HttpError),
    #[error("{0}")]
    Sse(#[from] sse::SseError),
    #[error("it does not speak MCP as expected: {0}")]
    Handshake(String),
}

/// A server's program, which is stopped when it is dropped.
pub(crate) enum ServerProgram {
    Host(Box<host::HostProgram>),
    Sandbox(sandbox::SandboxProgram),
    /// The server is reached over HTTP.
    None,
}

impl ServerProgram {
    /// Returns the end of its stderr.
    pub(crate) async fn stderr(&self) -> String {
        match self {
            Self::Host(program) => program.stderr().await,
            Self::Sandbox(program) => program.stderr().await,
            Self::None => String::new(),
        }
    }

    /// Waits for its exit for a grace period, then kills it.
    pub(crate) async fn end(self) {
        match self {
            Self::Host(program) => program.end().await,
            Self::Sandbox(program) => program.end().await,
            Self::None => {}
        }
    }
}

/// Connects to a server. A started program is stored in `started` before the handshake, so that its stderr can be quoted if that
/// fails.
pub(crate) async fn connect<H: ClientHandler>(
    server: &McpServer,
    handler: H,
    environment: &HostEnvironment,
    sandbox: Option<&Arc<dyn Sandbox>>,
    started: &mut ServerProgram,
) -> Result<RunningService<RoleClient, H>, ConnectError> {
    match &server.transport {
        Transport::Host(program) => {
            let (child, reads, writes) = host::start(program, environment)?;
            *started = ServerProgram::Host(Box::new(child));
            initialize(
                handler,
                AsyncRwTransport::new_client(reads, writes).with_max_line_length(MAX_MESSAGE_BYTES),
            )
            .await
        }
        Transport::Sandbox(program) => {
            let sandbox = sandbox.ok_or(ConnectError::NoSandbox)?;
            let (child, reads, writes) = sandbox::start(program, Arc::clone(sandbox));
            *started = ServerProgram::Sandbox(child);
            initialize(
                handler,
                AsyncRwTransport::new_client(reads, writes).with_max_line_length(MAX_MESSAGE_BYTES),
            )
            .await
        }
        Transport::StreamableHttp(remote) => {
            let client = http::client(remote)?;
            initialize(handler, StreamableHttpClientTransport::with_client(client, http::streamable(remote)))
                .await
        }
        Transport::Sse(remote) => initialize(handler, sse::connect(remote).await?).await,
    }
}

async fn initialize<H, T>(handler: H, transport: T) -> Result<RunningService<RoleClient, H>, ConnectError>
where
    H: ClientHandler,
    T: rmcp::transport::Transport<RoleClient> + 'static,
{
    // The handshake that all versions of the protocol support. A probe for a newer one makes some servers fail or hang.
    let served = rmcp::serve_client(handler, unanswered_limit::UnansweredLimit::new(transport)).await;
    served.map_err(|error| {
        ConnectError::Handshake(match &error {
            ClientInitializeError::TransportError { error, .. } => chain(error.error.as_ref()),
            other => chain(other),
        })
    })
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    // Its text lacks the cause.
    if let Some(StreamableHttpError::Client(error)) =
        error.downcast_ref::<StreamableHttpError<reqwest::Error>>()
    {
        return chain(error);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let detail = error.to_string();
        if !text.contains(&detail) {
            text.push_str(": ");
            text.push_str(&detail);
        }
        cause = error.source();
    }
    text
}
