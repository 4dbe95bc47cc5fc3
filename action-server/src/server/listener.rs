//! The listening socket. A unix socket is accessible only to this user. It replaces the socket of a
//! dead server, but never that of a running one, and its file is removed with the listener.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use tokio::net::{TcpListener, UnixListener};

use super::stream::SocketStream;
use crate::config::ListenAddress;

/// How long to wait for a server that is shutting down, which takes less time.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval at which the socket is probed during that time.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// A listening socket.
pub(super) enum ServerListener {
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
    Tcp(TcpListener),
}

/// The supervisor's unix socket, on which the server accepts connections. The kernel reports the
/// process that called `listen` as the peer of each connection. Clients compare it with the
/// supervisor's pid, which no process in the sandbox can have. The pid of the server itself could
/// be reused by another process after its exit.
pub(super) struct InheritedSocket {
    listener: unix::UnixListener,
    file: SocketFile,
}

impl InheritedSocket {
    /// Takes the socket that the supervisor has passed as standard output. Must be called before
    /// that is released.
    pub(super) fn from_stdout(address: &ListenAddress) -> anyhow::Result<Option<Self>> {
        let ListenAddress::Unix(path) = address else {
            return Ok(None);
        };
        let file = SocketFile::open(path)?;
        let socket = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .context("cannot take the supervisor's socket")?;
        Ok(Some(Self {
            listener: socket.into(),
            file,
        }))
    }
}

/// The path of the socket and the identity of its file. Removed on drop, unless another server has
/// replaced it.
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl ServerListener {
    /// Opens a TCP socket, or takes the unix socket of the supervisor.
    pub(super) fn open(
        address: &ListenAddress,
        inherited: Option<InheritedSocket>,
    ) -> anyhow::Result<Self> {
        match (address, inherited) {
            (ListenAddress::Tcp(address), _) => bind_tcp(*address)
                .map(Self::Tcp)
                .with_context(|| format!("cannot listen on {address}")),
            (ListenAddress::Unix(_), Some(InheritedSocket { listener, file })) => {
                let listener = UnixListener::from_std(listener)
                    .context("cannot use the supervisor's socket")?;
                Ok(Self::Unix {
                    listener,
                    _file: file,
                })
            }
            (ListenAddress::Unix(path), None) => {
                bail!("the supervisor does not listen on {}", path.display())
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<SocketStream> {
        match self {
            Self::Unix { listener, .. } => listener
                .accept()
                .await
                .map(|(stream, _)| SocketStream::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Small frames must not be delayed. Fails only if the connection is already closed.
                _ = stream.set_nodelay(true);
                Ok(SocketStream::Tcp(stream))
            }
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Listens on a unix socket. Must be called by the supervisor before it starts other code: it
/// changes the umask of the process for a moment, and it blocks while another server shuts down.
pub(crate) fn bind_unix(path: &Path) -> anyhow::Result<unix::UnixListener> {
    let path =
        std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    let folder = path
        .parent()
        .with_context(|| format!("{} is not the path of a socket", path.display()))?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot create the socket's folder {}", folder.display()))?;
    // Otherwise one of two servers that start concurrently could mistake the other's new socket for
    // a dead one. The lock is released at the end of this function.
    let _lock = lock(folder)?;
    remove_dead_socket(&path)?;
    let mask = umask(Mode::from_bits_truncate(0o177));
    let bound = unix::UnixListener::bind(&path);
    umask(mask);
    let listener = bound.with_context(|| format!("cannot listen on {}", path.display()))?;
    // For file systems that ignore the umask.
    fs::set_permissions(&path, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot set the mode of {}", path.display()))?;
    listener
        .set_nonblocking(true)
        .with_context(|| format!("cannot listen on {}", path.display()))?;
    Ok(listener)
}

impl SocketFile {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)
            .with_context(|| format!("cannot resolve {}", path.display()))?;
        let identity =
            identity(&path).with_context(|| format!("cannot inspect {}", path.display()))?;
        Ok(Self { path, identity })
    }
}

fn lock(folder: &Path) -> anyhow::Result<Flock<File>> {
    let file = File::open(folder)
        .with_context(|| format!("cannot open the socket's folder {}", folder.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("cannot lock the socket's folder {}", folder.display()))
}

fn remove_dead_socket(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot inspect {}", path.display()));
        }
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => bail!("{} exists and is not a socket", path.display()),
    }
    let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
    while unix::UnixStream::connect(path).is_ok() {
        if Instant::now() > deadline {
            bail!("another server listens on {}", path.display());
        }
        sleep(PROBE_INTERVAL);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the dead socket {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If this fails, the next server replaces the file.
            _ = fs::remove_file(&self.path);
        }
    }
}
