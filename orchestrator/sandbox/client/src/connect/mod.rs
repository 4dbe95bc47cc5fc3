//! Ways to open a byte stream to an action server. The protocol over it is the same for all: see
//! `action_client`.

mod greeting;
mod server_url;
mod unix_socket;

use std::io;
use std::time::Duration;

use async_trait::async_trait;

pub(crate) use engine::sandbox::ByteStream;
pub use greeting::{GreetingError, expect_greeting};
pub use server_url::{ServerUrl, ServerUrlError};
pub use unix_socket::UnixSocket;

/// Opens streams to one action server.
#[async_trait]
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream. The caller applies a timeout and retries.
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError>;

    /// The URL of requests. `None` unless a proxy between reads it.
    fn url(&self) -> Option<&ServerUrl> {
        None
    }

    /// How long attempts may fail. Longer over a network. By default less than 5 s, within which a
    /// killed server must be reported as lost.
    fn reconnect_timeout(&self) -> Duration {
        Duration::from_millis(3500)
    }
}

/// Why no stream was opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server is certainly gone. A retry cannot succeed.
    #[error("{0}")]
    Gone(String),
    /// The server may run, and a retry cannot succeed until the user changes something.
    #[error("{0}")]
    Unreachable(String),
    /// The server is paused. It cannot respond until it is resumed.
    #[error("{0}")]
    Paused(String),
    /// The state of the server is unknown, because its engine or host does not respond. It may be
    /// restarting.
    #[error("{0}")]
    Unknown(String),
    /// The host or engine responds, and the server does not. A retry may succeed.
    #[error("cannot {operation} {subject}: {source}")]
    Failed {
        /// Verb of the message, such as `open`.
        operation: &'static str,
        /// Object of the message: the stream, with its address.
        subject: String,
        /// Error of the operating system, the engine or the host.
        source: io::Error,
    },
}
