//! How a server is reached, and how that ends.
//!
//! Each kind gives the protocol something to speak over, and [`Holding`] what must be ended by hand: a program on this
//! host or in the sandbox. Dropping it ends the program too.

mod host;
mod http;
mod polite;
mod sandbox;
mod sse;
mod tail;

use std::sync::Arc;

use engine::sandbox::Sandbox;
use rmcp::service::{ClientInitializeError, RunningService};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpError};
use rmcp::{ClientHandler, RoleClient};

use crate::config::{McpServer, Transport};

pub(crate) use host::HostEnvironment;

/// The longest message of a server that is read, in bytes: an answer with the images that are kept, and more.
const LONGEST_MESSAGE: usize = 16 << 20;

/// Why a server does not answer. In one line, without secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("starting {command}: {source}; check `command` in its configuration")]
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

/// What must be ended when a server is not needed any more.
pub(crate) enum Holding {
    Host(Box<host::HostProgram>),
    Sandbox(sandbox::SandboxProgram),
    Nothing,
}

impl Holding {
    /// The end of what it wrote for people; empty when that is nothing.
    pub(crate) async fn stderr(&self) -> String {
        match self {
            Self::Host(program) => program.stderr().await,
            Self::Sandbox(program) => program.stderr().await,
            Self::Nothing => String::new(),
        }
    }

    /// Lets it end by itself for a moment, then ends it.
    pub(crate) async fn end(self) {
        match self {
            Self::Host(program) => program.end().await,
            Self::Sandbox(program) => program.end().await,
            Self::Nothing => {}
        }
    }
}

/// Reaches a server and begins to speak. What was started is given to `hold` first, so that what it wrote can be told
/// when it does not answer.
pub(crate) async fn connect<H: ClientHandler>(
    server: &McpServer,
    handler: H,
    environment: &HostEnvironment,
    sandbox: Option<&Arc<dyn Sandbox>>,
    hold: &mut Holding,
) -> Result<RunningService<RoleClient, H>, ConnectError> {
    match &server.transport {
        Transport::Host(program) => {
            let (started, reads, writes) = host::start(program, environment)?;
            *hold = Holding::Host(Box::new(started));
            speak(handler, AsyncRwTransport::new_client(reads, writes).with_max_line_length(LONGEST_MESSAGE))
                .await
        }
        Transport::Sandbox(program) => {
            let sandbox = sandbox.ok_or(ConnectError::NoSandbox)?;
            let (started, reads, writes) = sandbox::start(program, Arc::clone(sandbox));
            *hold = Holding::Sandbox(started);
            speak(handler, AsyncRwTransport::new_client(reads, writes).with_max_line_length(LONGEST_MESSAGE))
                .await
        }
        Transport::StreamableHttp(remote) => {
            let client = http::client(remote)?;
            speak(handler, StreamableHttpClientTransport::with_client(client, http::streamable(remote))).await
        }
        Transport::Sse(remote) => speak(handler, sse::connect(remote).await?).await,
    }
}

async fn speak<H, T>(handler: H, transport: T) -> Result<RunningService<RoleClient, H>, ConnectError>
where
    H: ClientHandler,
    T: rmcp::transport::Transport<RoleClient> + 'static,
{
    // By the handshake that every version of the protocol up to now has: a probe for a newer one makes some servers
    // fail, and others silent.
    let served = rmcp::serve_client(handler, polite::Polite::new(transport)).await;
    served.map_err(|error| {
        ConnectError::Handshake(match &error {
            ClientInitializeError::TransportError { error, .. } => chain(error.error.as_ref()),
            other => chain(other),
        })
    })
}

/// An error with its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    // Says what it was doing, and hides why it failed.
    if let Some(StreamableHttpError::Client(error)) =
        error.downcast_ref::<StreamableHttpError<reqwest::Error>>()
    {
        return chain(error);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
