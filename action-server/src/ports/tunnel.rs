//! A byte tunnel between an upgraded stream and a port or socket in the sandbox.
//!
//! Bytes are not inspected. Either side may close its half. The tunnel ends when both halves are
//! closed, on an error, or when the server shuts down.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::listening;

/// Maximum number of tunnels. A web page opens a dozen; each uses two buffers.
const MAX_TUNNELS: usize = 256;

/// Size of the buffer for one direction.
const BUFFER_BYTES: usize = 64 << 10;

/// A port that drops packets would otherwise block a tunnel forever.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The destination of a tunnel.
#[derive(Debug)]
pub(crate) enum TunnelTarget {
    /// A TCP port of this machine.
    Port(u16),
    /// A unix socket.
    Socket(PathBuf),
}

/// Reason why a tunnel cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    #[error("nothing listens on port {0}")]
    NoListener(u16),
    #[error("cannot connect to {target}: {source}")]
    Connect { target: String, source: io::Error },
    #[error("{MAX_TUNNELS} tunnels are open, which is the maximum")]
    TooMany,
}

/// A TCP or unix stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The open tunnels. They are tasks of their connections and end with them.
pub(crate) struct Tunnels {
    tasks: TaskTracker,
    stop: CancellationToken,
    permits: Arc<Semaphore>,
}

impl Tunnels {
    pub(crate) fn new(tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self {
            tasks,
            stop,
            permits: Arc::new(Semaphore::new(MAX_TUNNELS)),
        }
    }

    /// Connects to the target, and copies bytes once the request has become a stream.
    pub(crate) async fn open(
        &self,
        target: TunnelTarget,
        upgrade: OnUpgrade,
    ) -> Result<(), TunnelError> {
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| TunnelError::TooMany)?;
        let mut target = connect(target).await?;
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let copied = async {
                let mut client = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
                copy_bidirectional_with_sizes(&mut client, &mut target, BUFFER_BYTES, BUFFER_BYTES)
                    .await
            };
            tokio::select! {
                copied = copied => match copied {
                    Ok((up, down)) => tracing::debug!(up, down, "tunnel closed"),
                    Err(error) => tracing::debug!(%error, "tunnel failed"),
                },
                () = stop.cancelled() => {}
            }
            drop(permit);
        });
        Ok(())
    }
}

async fn connect(target: TunnelTarget) -> Result<Box<dyn Duplex>, TunnelError> {
    match target {
        TunnelTarget::Port(port) => {
            let mut failed = None;
            for address in listening::addresses(port) {
                match connect_tcp(address).await {
                    Ok(stream) => return Ok(Box::new(stream)),
                    Err(source) => {
                        failed = Some(TunnelError::Connect {
                            target: address.to_string(),
                            source,
                        });
                    }
                }
            }
            Err(failed.unwrap_or(TunnelError::NoListener(port)))
        }
        TunnelTarget::Socket(path) => {
            let connected = with_timeout(UnixStream::connect(&path)).await;
            let target = path.display().to_string();
            connected
                .map(|stream| Box::new(stream) as _)
                .map_err(|source| TunnelError::Connect { target, source })
        }
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = with_timeout(TcpStream::connect(address)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn with_timeout<T>(connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT_TIMEOUT, connect)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
