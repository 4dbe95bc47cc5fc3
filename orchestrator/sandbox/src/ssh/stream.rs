//! A byte stream to a server over SSH: a channel to its unix socket, or where the other side refuses such channels, the
//! standard streams of `action-server dial` on a connection of its own, since sessions are few on one connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use protocol::SandboxId;

use super::error::SshError;
use super::far_side::{FarSide, State};
use super::program::Program;
use super::script::quoted;
use super::shared_connection::SharedConnection;
use crate::connect::{ByteStream, ConnectError, Connector, expect_greeting};

/// How long a host may be out of reach: a laptop changes its network, a host its sshd. Whether the server is gone is
/// known at once when the host is reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// Finds the program below the home folder, which only the other side knows.
const DIAL: &str = r#"exec /bin/sh -c 'exec "$HOME/.glovebox/bin/$1" dial --socket "$2"' sh"#;

/// Whether this host refuses channels to sockets, once that is known. Shared by the sandboxes of a host.
#[derive(Default)]
pub(super) struct RefusesSockets(AtomicBool);

/// Reaches one sandbox's server.
pub(super) struct SshStream {
    pub(super) shared: Arc<SharedConnection>,
    pub(super) refuses_sockets: Arc<RefusesSockets>,
    pub(super) program: Arc<Program>,
    pub(super) owner: Arc<str>,
    pub(super) sandbox: SandboxId,
    pub(super) socket: String,
}

impl SshStream {
    fn failed(&self, doing: &str, error: impl std::fmt::Display) -> ConnectError {
        let doing = format!("{doing} of the sandbox {}", self.sandbox);
        ConnectError::Failed { doing, source: io::Error::other(error.to_string()) }
    }

    async fn dial(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        const DOING: &str = "running `action-server dial` for the server";
        let identity = self.program.identity().await.map_err(|error| self.failed(DOING, error))?;
        let connection = self.shared.another().await.map_err(|error| self.failed(DOING, error))?;
        let command = format!("{DIAL} {} {}", quoted(&identity.file), quoted(&self.socket));
        let mut stream = connection.stream_of(command).await.map_err(|error| self.failed(DOING, error))?;
        match expect_greeting(&mut stream).await {
            Ok(()) => Ok(Box::new(stream)),
            Err(error) => Err(self.failed(DOING, error)),
        }
    }
}

#[async_trait]
impl Connector for SshStream {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        const DOING: &str = "reaching the server";
        let connection = self.shared.get().await.map_err(|error| match error {
            SshError::Hopeless(reason) => ConnectError::Gone(reason),
            other => self.failed(DOING, other),
        })?;
        let RefusesSockets(refuses) = &*self.refuses_sockets;
        if !refuses.load(Ordering::Relaxed) {
            match connection.socket(&self.socket).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(SshError::ChannelRefused { .. }) => {}
                Err(error) => return Err(self.failed(DOING, error)),
            }
        }
        let far_side = FarSide { connection, owner: Arc::clone(&self.owner) };
        match far_side.state(&self.sandbox).await {
            Ok(State::Running { .. }) => {}
            Ok(State::Ended) => {
                return Err(ConnectError::Gone(format!("the server of {} has ended", self.sandbox)));
            }
            Ok(State::Missing) => {
                return Err(ConnectError::Gone(format!("there is no sandbox {}", self.sandbox)));
            }
            Err(error) => return Err(self.failed(DOING, error)),
        }
        let stream = self.dial().await?;
        refuses.store(true, Ordering::Relaxed);
        Ok(stream)
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}
