//! Direct access to a sandbox's action server, for a sandbox host that leases the sandbox to
//! clients.

use async_trait::async_trait;
use secrecy::SecretString;
use tokio::io::{AsyncRead, AsyncWrite};

use super::SandboxError;

/// A duplex stream of bytes. Dropping it closes it.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Opens byte streams to the action server of one sandbox.
#[async_trait]
pub trait OpenStream: Send + Sync {
    /// Opens a stream. The caller applies a timeout.
    ///
    /// # Errors
    /// [`SandboxError::Lost`] if the server is gone for good. After any other error a retry may
    /// succeed.
    async fn open(&self) -> Result<Box<dyn ByteStream>, SandboxError>;
}

/// How to reach a sandbox's action server and authenticate to it. Neither is visible inside the
/// sandbox.
pub struct ServerAccess {
    /// The key that each request must carry.
    pub key: SecretString,
    /// Opens streams to it.
    pub streams: Box<dyn OpenStream>,
}
