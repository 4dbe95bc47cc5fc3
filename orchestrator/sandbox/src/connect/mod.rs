//! Ways to open a byte stream to an action server. What is spoken over it is the same for all: `action_client`.

mod greeting;
mod unix_socket;

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use greeting::expect_greeting;
pub(crate) use unix_socket::UnixSocket;

/// A duplex stream of bytes. Dropping it ends it.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// How long a server may be out of reach before it counts as lost. A killed one must be known as lost within 5 s.
const PATIENCE: Duration = Duration::from_millis(3500);

/// Opens streams to one action server.
#[async_trait]
pub(crate) trait Connector: Send + Sync + 'static {
    /// Opens a stream. Tried again by the caller, who also bounds how long it takes.
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError>;

    /// How long the server may be out of reach before it counts as lost: longer where there is a network between, and
    /// it shows at once that a server is gone.
    fn patience(&self) -> Duration {
        PATIENCE
    }
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// It is certain that the server is gone. Trying again is of no use.
    #[error("{0}")]
    Gone(String),
    /// Something failed that may go better the next time.
    #[error("{doing}: {source}")]
    Failed {
        /// What was being done, to what.
        doing: String,
        source: io::Error,
    },
}
