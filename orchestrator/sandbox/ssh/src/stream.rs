//! Byte stream to a server over SSH: a channel to its unix socket. If the host refuses such
//! channels, the stream uses `action-server dial` on a separate connection, since the sessions of
//! one connection are limited.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use engine::sandbox::ByteStream;
use protocol::SandboxId;
use sandbox_client::{ConnectError, Connector, expect_greeting};

use super::error::SshError;
use super::program::Program;
use super::remote_host::{RemoteHost, State};
use super::script::shell_quote;
use super::shared_connection::SharedConnection;

/// Time that a host may be unreachable, for example while a laptop changes networks or sshd
/// restarts. An exited server is detected immediately once the host is reachable.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Resolves the binary below the home folder, whose path is known only on the remote host.
const DIAL: &str = r#"exec /bin/sh -c 'exec "$HOME/.glovebox/bin/$1" dial --socket "$2"' sh"#;

/// Opens streams to the server of one sandbox.
pub(super) struct SshStream {
    pub(super) shared: Arc<SharedConnection>,
    /// Set when sshd has refused to forward unix sockets. Shared by the sandboxes of a host.
    pub(super) refuses_sockets: Arc<AtomicBool>,
    pub(super) program: Arc<Program>,
    pub(super) owner: Arc<str>,
    pub(super) sandbox: SandboxId,
    pub(super) socket: String,
}

impl SshStream {
    fn failed<E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        operation: &'static str,
    ) -> impl FnOnce(E) -> ConnectError {
        let subject = format!("the server of the sandbox {}", self.sandbox);
        move |error| ConnectError::Failed {
            operation,
            subject,
            source: io::Error::other(error),
        }
    }

    async fn dial(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        const OPERATION: &str = "run `action-server dial` for";
        let identity = self
            .program
            .identity()
            .await
            .map_err(self.failed(OPERATION))?;
        let connection = self.shared.open_dedicated().await.map_err(unknown)?;
        let command = format!(
            "{DIAL} {} {}",
            shell_quote(&identity.file),
            shell_quote(&self.socket)
        );
        let mut stream = connection.exec_stream(command).await.map_err(unknown)?;
        expect_greeting(&mut stream)
            .await
            .map_err(self.failed(OPERATION))?;
        Ok(Box::new(stream))
    }
}

/// The host does not respond. Otherwise it says whether the server runs.
fn unknown(error: impl std::fmt::Display) -> ConnectError {
    ConnectError::Unknown(error.to_string())
}

#[async_trait]
impl Connector for SshStream {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let connection = self.shared.get().await.map_err(|error| match error {
            SshError::Permanent(reason) => ConnectError::Unreachable(reason),
            other => unknown(other),
        })?;
        if !self.refuses_sockets.load(Ordering::Relaxed) {
            match connection.socket(&self.socket).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(SshError::ChannelRefused { .. }) => {}
                Err(error) => return Err(unknown(error)),
            }
        }
        let remote_host = RemoteHost {
            connection,
            owner: Arc::clone(&self.owner),
        };
        match remote_host.state(&self.sandbox).await.map_err(unknown)? {
            State::Running { .. } => {}
            State::Ended => {
                return Err(ConnectError::Gone(format!(
                    "the server of {} has exited",
                    self.sandbox
                )));
            }
            State::Missing => {
                return Err(ConnectError::Gone(format!(
                    "there is no sandbox {}",
                    self.sandbox
                )));
            }
        }
        let stream = self.dial().await?;
        self.refuses_sockets.store(true, Ordering::Relaxed);
        Ok(stream)
    }

    fn reconnect_timeout(&self) -> Duration {
        RECONNECT_TIMEOUT
    }
}
