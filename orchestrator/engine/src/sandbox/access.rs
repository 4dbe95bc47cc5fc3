//! The way to a sandbox's server itself, below the actions: for whoever lends the sandbox to somebody else.

use async_trait::async_trait;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};

use super::SandboxError;

/// A duplex stream of bytes. Dropping it ends it.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Opens byte streams to one sandbox's server.
#[async_trait]
pub trait OpenStream: Send + Sync {
    /// Opens one. The caller bounds how long it takes.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] when the server is certainly gone; with another error it may go better the next time.
    async fn open(&self) -> Result<Box<dyn ByteStream>, SandboxError>;
}

/// How a sandbox's server is reached, and what it asks for. What runs in the sandbox knows neither.
pub struct ServerAccess {
    /// The key that each request must carry.
    pub key: SecretString,
    /// Opens streams to it.
    pub streams: Box<dyn OpenStream>,
}
