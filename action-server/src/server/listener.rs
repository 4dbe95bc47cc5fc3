//! The socket that is listened on. A unix socket is this user's only, replaces the one of a dead server, never that of
//! a living one, and is removed with its listener.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{Mode, umask};
use tokio::net::{TcpListener, UnixListener};

use super::stream::Stream;
use crate::config::Address;

/// How long a server that is just ending may still hold the socket: the time that its end may take, and some.
const ENDING_SERVER: Duration = Duration::from_secs(3);

/// Between two looks at whether it is gone; the system tells nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A socket that listens.
pub(super) enum Listener {
    Unix { listener: UnixListener, _file: SocketFile },
    Tcp(TcpListener),
}

/// The supervisor's unix socket, which the server accepts from. The kernel reports the process that called `listen` as the
/// peer of each connection: clients compare it with the supervisor, whose id they know, and which nothing that runs here
/// can be. A server that has ended could not be told from what took its id.
pub(super) struct Inherited {
    listener: unix::UnixListener,
    file: SocketFile,
}

impl Inherited {
    /// The socket that the supervisor has passed as standard output. To be called before that is let go of.
    pub(super) fn from_stdout(address: &Address) -> anyhow::Result<Option<Self>> {
        let Address::Unix(path) = address else { return Ok(None) };
        let file = SocketFile::at(path)?;
        let socket = io::stdout().as_fd().try_clone_to_owned().context("taking the supervisor's socket")?;
        Ok(Some(Self { listener: socket.into(), file }))
    }
}

/// The name of our socket, and which file had it. Removed at the end, unless it is another server's by then.
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Listener {
    /// A TCP socket of its own, or the unix socket that the supervisor listens on.
    pub(super) fn open(address: &Address, inherited: Option<Inherited>) -> anyhow::Result<Self> {
        match (address, inherited) {
            (Address::Tcp(address), _) => {
                bind_tcp(*address).map(Self::Tcp).with_context(|| format!("listening on {address}"))
            }
            (Address::Unix(_), Some(Inherited { listener, file })) => {
                let listener = UnixListener::from_std(listener).context("serving the supervisor's socket")?;
                Ok(Self::Unix { listener, _file: file })
            }
            (Address::Unix(path), None) => bail!("the supervisor does not listen on {}", path.display()),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix { listener, .. } => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Small frames must not wait for each other. A connection that is gone already fails later too.
                _ = stream.set_nodelay(true);
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Listens on a unix socket. For the supervisor, before anything else runs: the socket's mode needs the process's mask for
/// a moment, and a server that is just ending is waited for.
pub(crate) fn bind_unix(path: &Path) -> anyhow::Result<unix::UnixListener> {
    let path = std::path::absolute(path).with_context(|| format!("resolving {}", path.display()))?;
    let folder = path.parent().with_context(|| format!("{} is no path of a socket", path.display()))?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("making the socket's folder {}", folder.display()))?;
    // Two servers that start at once must not take each other's new socket for a dead one's. The lock ends with this
    // function, and with the process.
    let _lock = lock(folder)?;
    remove_dead(&path)?;
    let mask = umask(Mode::from_bits_truncate(0o177));
    let bound = unix::UnixListener::bind(&path);
    umask(mask);
    let listener = bound.with_context(|| format!("listening on {}", path.display()))?;
    // For file systems that take no notice of the mask.
    fs::set_permissions(&path, Permissions::from_mode(0o600))
        .with_context(|| format!("protecting {}", path.display()))?;
    listener.set_nonblocking(true).with_context(|| format!("listening on {}", path.display()))?;
    Ok(listener)
}

impl SocketFile {
    fn at(path: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path).with_context(|| format!("resolving {}", path.display()))?;
        let identity = identity(&path).with_context(|| format!("looking at {}", path.display()))?;
        Ok(Self { path, identity })
    }
}

fn lock(folder: &Path) -> anyhow::Result<Flock<File>> {
    let file =
        File::open(folder).with_context(|| format!("opening the socket's folder {}", folder.display()))?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("locking the socket's folder {}", folder.display()))
}

fn remove_dead(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("looking at {}", path.display())),
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => bail!("{} exists and is not a socket", path.display()),
    }
    let patience_ends = Instant::now() + ENDING_SERVER;
    while unix::UnixStream::connect(path).is_ok() {
        if Instant::now() > patience_ends {
            bail!("another server listens on {}", path.display());
        }
        sleep(LOOK_AGAIN);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing the dead socket {}", path.display()))
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
            // Left behind it does no harm: the next server replaces it.
            _ = fs::remove_file(&self.path);
        }
    }
}
