//! A byte tunnel: what comes on an upgraded stream goes to a port or a socket inside, and back.
//!
//! Looks at no byte. Either side may close its half; the tunnel ends when both have, when one fails, or with the server.

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

/// A page of a browser opens a dozen; each holds two buffers.
const MAX_TUNNELS: usize = 256;

/// One way of one tunnel.
const BUFFER_BYTES: usize = 64 << 10;

/// A port that drops what it is sent would hold a tunnel's beginning for ever.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Where a tunnel leads.
#[derive(Debug)]
pub(crate) enum Target {
    /// A TCP port of this machine.
    Port(u16),
    /// A unix socket.
    Socket(PathBuf),
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreachable {
    #[error("nothing listens on port {0}")]
    NoListener(u16),
    #[error("connecting to {target}: {source}")]
    Connect { target: String, source: io::Error },
    #[error("{MAX_TUNNELS} tunnels are open, no more are begun")]
    TooMany,
}

/// Both kinds of streams.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The tunnels of a server: tasks of its connections, ended with them.
pub(crate) struct Tunnels {
    tasks: TaskTracker,
    stop: CancellationToken,
    places: Arc<Semaphore>,
}

impl Tunnels {
    pub(crate) fn new(tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { tasks, stop, places: Arc::new(Semaphore::new(MAX_TUNNELS)) }
    }

    /// Connects, and carries bytes once the request's stream was handed over.
    pub(crate) async fn open(&self, target: Target, upgrade: OnUpgrade) -> Result<(), Unreachable> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Unreachable::TooMany)?;
        let mut inside = connect(target).await?;
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let carried = async {
                let mut outside = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
                copy_bidirectional_with_sizes(&mut outside, &mut inside, BUFFER_BYTES, BUFFER_BYTES).await
            };
            tokio::select! {
                carried = carried => match carried {
                    Ok((up, down)) => tracing::debug!(up, down, "a tunnel has ended"),
                    Err(error) => tracing::debug!(%error, "a tunnel has failed"),
                },
                () = stop.cancelled() => {}
            }
            drop(place);
        });
        Ok(())
    }
}

async fn connect(target: Target) -> Result<Box<dyn Duplex>, Unreachable> {
    match target {
        Target::Port(port) => {
            let mut failed = None;
            for address in listening::addresses(port) {
                match connect_tcp(address).await {
                    Ok(stream) => return Ok(Box::new(stream)),
                    Err(source) => {
                        failed = Some(Unreachable::Connect { target: address.to_string(), source });
                    }
                }
            }
            Err(failed.unwrap_or(Unreachable::NoListener(port)))
        }
        Target::Socket(path) => {
            let connected = patiently(UnixStream::connect(&path)).await;
            let target = path.display().to_string();
            connected
                .map(|stream| Box::new(stream) as _)
                .map_err(|source| Unreachable::Connect { target, source })
        }
    }
}

async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = patiently(TcpStream::connect(address)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn patiently<T>(connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(CONNECT_PATIENCE, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
