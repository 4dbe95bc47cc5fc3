//! Ways to open a byte stream to an action server. What is spoken over it is the same for all: `action_client`.

mod greeting;
mod unix_socket;

use std::io;

use async_trait::async_trait;

pub(crate) use engine::sandbox::ByteStream;
pub(crate) use greeting::expect_greeting;
pub(crate) use unix_socket::UnixSocket;

/// Opens streams to one action server.
#[async_trait]
pub(crate) trait Connector: Send + Sync + 'static {
    /// Opens a stream. Tried again by the caller, who also bounds how long it takes.
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError>;
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
