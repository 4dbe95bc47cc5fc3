//! Ways to open a byte stream to an action server. What is spoken over it is the same for all: `action_client`.

mod greeting;
mod server_url;
mod unix_socket;

use std::io;
use std::time::Duration;

use async_trait::async_trait;

pub(crate) use engine::sandbox::ByteStream;
pub(crate) use greeting::expect_greeting;
pub use server_url::{ServerUrl, ServerUrlError};
pub(crate) use unix_socket::UnixSocket;

/// Opens streams to one action server.
#[async_trait]
pub(crate) trait Connector: Send + Sync + 'static {
    /// Opens a stream. Tried again by the caller, who also bounds how long it takes.
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError>;

    /// The address that requests are made out to, for servers behind something that reads it; nothing: nobody does.
    fn url(&self) -> Option<&ServerUrl> {
        None
    }

    /// How long the server may be out of reach before it counts as lost, while nothing says that it is gone: longer where
    /// there is a network between. A killed one must be known as lost within 5 s.
    fn patience(&self) -> Duration {
        Duration::from_millis(3500)
    }
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// It is certain that the server is gone. Trying again is of no use.
    #[error("{0}")]
    Gone(String),
    /// It is there and frozen: it cannot answer before it is resumed.
    #[error("{0}")]
    Paused(String),
    /// Whoever knows what became of it does not answer: an engine that is started again. The server may well live.
    #[error("{0}")]
    Unknown(String),
    /// Something failed that may go better the next time.
    #[error("{doing}: {source}")]
    Failed {
        /// What was being done, to what.
        doing: String,
        source: io::Error,
    },
}
