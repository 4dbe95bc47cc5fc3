//! The unix socket of a server, in a folder that the sandbox can write to.
//!
//! A process in the sandbox may replace the path with a link to another socket of the host.
//! Therefore the path is opened without following links, and the connection uses the opened file.
//! The caller must check which process listens.

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, OFlags};
use tokio::net::UnixStream;

use super::ConnectError;

/// Connects to a unix socket, never through a symbolic link.
pub struct UnixSocket {
    path: PathBuf,
}

impl UnixSocket {
    /// Creates a socket address. Nothing is opened yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Connects to the process that listens.
    ///
    /// # Errors
    /// [`ConnectError::Gone`] if there is no socket or no process listens,
    /// [`ConnectError::Failed`] otherwise.
    pub async fn connect(&self) -> Result<UnixStream, ConnectError> {
        let path = self.path.display();
        match connect(&self.path).await {
            Ok(stream) => Ok(stream),
            // No process listens any more: a running one would queue the connection.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(ConnectError::Gone(format!("no server listens at {path}")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ConnectError::Gone(format!("there is no socket {path}")))
            }
            Err(source) => Err(ConnectError::Failed {
                operation: "connect to",
                subject: path.to_string(),
                source,
            }),
        }
    }
}

async fn connect(path: &std::path::Path) -> io::Result<UnixStream> {
    let socket = rustix::fs::open(
        path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let found = FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode);
    if found != FileType::Socket {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not a socket but {found:?}"),
        ));
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
    async fn connect_fails_when_the_socket_is_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        let _listener = UnixListener::bind(&real).unwrap();
        symlink(&real, &link).unwrap();

        assert!(UnixSocket::new(real).connect().await.is_ok());
        let error = UnixSocket::new(link.clone()).connect().await.err().unwrap();
        assert!(matches!(error, ConnectError::Failed { .. }), "{error}");
        assert!(
            error.to_string().contains("not a socket but Symlink"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn server_is_gone_when_no_process_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(matches!(
            UnixSocket::new(path).connect().await,
            Err(ConnectError::Gone(_))
        ));
    }
}
