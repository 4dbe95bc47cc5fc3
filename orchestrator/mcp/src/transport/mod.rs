//! Connections to servers.
//!
//! Each transport provides a stream of messages. If the server is a program, its [`ServerProgram`]
//! stops it on request or on drop.

mod bounded_client;
mod host;
mod http;
mod sandbox;
mod sse;
mod stderr_tail;
mod unanswered_limit;
mod value_limit;

use std::sync::Arc;
use std::time::Duration;

use engine::errors::format_chain;
use engine::sandbox::Sandbox;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpError};
use rmcp::{ClientHandler, RoleClient};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::{McpServer, Transport};

pub(crate) use host::HostEnvironment;
use value_limit::ValueLimit;

/// Maximum size of a message of a server, in bytes. More than a result with the maximum of images.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Time for a program to exit after its stdin was closed.
const EXIT_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Error of connecting to a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("cannot start {command}: {source}; check `command` in its configuration")]
    Start {
        command: String,
        source: std::io::Error,
    },
    #[error("cannot create a process id: {0}")]
    ProcessId(#[from] protocol::IdError),
    #[error("there is no sandbox for it yet")]
    NoSandbox,
    #[error("{0}")]
    Http(#[from] http::HttpError),
    #[error("{0}")]
    Sse(#[from] sse::SseError),
    #[error("the MCP handshake failed: {0}")]
    Handshake(String),
}

/// Program of a server. Killed on drop.
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
    pub(crate) async fn stop(self) {
        match self {
            Self::Host(program) => program.stop().await,
            Self::Sandbox(program) => program.stop().await,
            Self::None => {}
        }
    }
}

/// Connects to a server. A started program is stored in `started` before the handshake, so that its
/// stderr can be quoted if that fails.
pub(crate) async fn connect<H: ClientHandler>(
    server: &McpServer,
    handler: H,
    environment: &HostEnvironment,
    sandbox: Option<&Arc<dyn Sandbox>>,
    started: &mut ServerProgram,
) -> Result<RunningService<RoleClient, H>, ConnectError> {
    match &server.transport {
        Transport::Host(program) => {
            let (child, stdout, stdin) = host::start(program, environment)?;
            *started = ServerProgram::Host(Box::new(child));
            initialize(handler, stdio(stdout, stdin)).await
        }
        Transport::Sandbox(program) => {
            let sandbox = sandbox.ok_or(ConnectError::NoSandbox)?;
            let (child, stdout, stdin) = sandbox::start(program, Arc::clone(sandbox))?;
            *started = ServerProgram::Sandbox(child);
            initialize(handler, stdio(stdout, stdin)).await
        }
        Transport::StreamableHttp(remote) => {
            let client = http::client(remote)?;
            initialize(
                handler,
                StreamableHttpClientTransport::with_client(
                    bounded_client::BoundedClient(client),
                    http::streamable(remote),
                ),
            )
            .await
        }
        Transport::Sse(remote) => initialize(handler, sse::connect(remote).await?).await,
    }
}

fn stdio<R, W>(stdout: R, stdin: W) -> AsyncRwTransport<RoleClient, ValueLimit<R>, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    AsyncRwTransport::new_client(ValueLimit::new(stdout), stdin)
        .with_max_line_length(MAX_MESSAGE_BYTES)
}

async fn initialize<H, T>(
    handler: H,
    transport: T,
) -> Result<RunningService<RoleClient, H>, ConnectError>
where
    H: ClientHandler,
    T: rmcp::transport::Transport<RoleClient> + 'static,
{
    // All protocol versions support this handshake. A probe for a newer one makes some servers fail
    // or hang.
    let served =
        rmcp::serve_client(handler, unanswered_limit::UnansweredLimit::new(transport)).await;
    served.map_err(|error| {
        ConnectError::Handshake(match &error {
            ClientInitializeError::TransportError { error, .. } => {
                format_error(error.error.as_ref())
            }
            other => format_error(other),
        })
    })
}

/// Returns an error and its causes in one line.
pub(crate) fn format_error(error: &(dyn std::error::Error + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        // Its text lacks the cause.
        Some(StreamableHttpError::Client(error)) => format_chain(error),
        _ => format_chain(error),
    }
}
