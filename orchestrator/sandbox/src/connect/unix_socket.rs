//! A server's unix socket in a folder that the sandbox can write to.
//!
//! The name may be replaced at any time by a link to another socket of the host. So the name is opened once, without
//! following links, and what was opened is what is connected to. Who listens there is for the caller to check.

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags};
use tokio::net::UnixStream;

use super::ConnectError;

/// Connects to a unix socket, never through a symbolic link.
pub(crate) struct UnixSocket {
    path: PathBuf,
}

impl UnixSocket {
    /// The socket at `path`.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Opens a connection to whatever listens there.
    pub(crate) async fn connect(&self) -> Result<UnixStream, ConnectError> {
        let path = self.path.display();
        match connect(&self.path).await {
            Ok(stream) => Ok(stream),
            // Nobody listens any more: a listener that lives queues or answers, it does not refuse.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(ConnectError::Gone(format!("no server listens at {path}")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ConnectError::Gone(format!("there is no socket {path}")))
            }
            Err(source) => Err(ConnectError::Failed { doing: format!("connecting to {path}"), source }),
        }
    }
}

async fn connect(path: &std::path::Path) -> io::Result<UnixStream> {
    let socket = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode);
    if found != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a socket but {found:?}")));
    }
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd())).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tokio::net::UnixListener;

    use super::super::ConnectError;
    use super::UnixSocket;

    #[tokio::test]
    async fn a_link_in_the_sockets_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        let _listener = UnixListener::bind(&real).unwrap();
        symlink(&real, &link).unwrap();

        assert!(UnixSocket::at(real).connect().await.is_ok());
        let error = UnixSocket::at(link.clone()).connect().await.err().unwrap();
        assert!(matches!(error, ConnectError::Failed { .. }), "{error}");
        assert!(error.to_string().contains("not a socket but Symlink"), "{error}");
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_to_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(matches!(UnixSocket::at(path).connect().await, Err(ConnectError::Gone(_))));
    }
}
