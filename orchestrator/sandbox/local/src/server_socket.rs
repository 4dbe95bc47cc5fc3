//! Connections to a local sandbox's server: its socket, and the process that must listen there.
//!
//! Processes in the sandbox can replace the socket with their own. The kernel reports which process
//! called `listen`. A connection to any process other than the recorded one is closed before a byte
//! is sent.

use std::io;

use async_trait::async_trait;
use engine::sandbox::ByteStream;
use sandbox_client::{ConnectError, Connector, UnixSocket};

use super::folder::SandboxFolder;

/// Connects to the server of one sandbox.
pub(super) struct ServerSocket {
    pub(super) folder: SandboxFolder,
}

#[async_trait]
impl Connector for ServerSocket {
    async fn connect(&self) -> Result<Box<dyn ByteStream>, ConnectError> {
        let path = self.folder.socket();
        let failed = |source: io::Error| {
            let subject = format!("the process that listens on {}", path.display());
            ConnectError::Failed {
                operation: "identify",
                subject,
                source,
            }
        };
        let processes = self
            .folder
            .server()
            .map_err(|error| failed(io::Error::other(error)))?;
        let gone = || ConnectError::Gone(format!("the server of {} has exited", path.display()));
        let server = processes.ok_or_else(gone)?.server;
        let stream = UnixSocket::new(path.clone()).connect().await?;
        let peer = stream.peer_cred().map_err(failed)?.pid();
        if peer != Some(server.pid) {
            let peer = peer.map(|pid| pid.to_string()).unwrap_or_default();
            return Err(ConnectError::Gone(format!(
                "the process {peer} listens on {} instead of the sandbox's server, process {}",
                path.display(),
                server.pid
            )));
        }
        // Checked after the connection, because the id may have been reused before.
        if server.is_alive() {
            Ok(Box::new(stream))
        } else {
            Err(gone())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use engine::sandbox::Lifetime;
    use tokio::net::UnixListener;

    use super::super::process::{KnownProcess, ServerProcesses};
    use super::*;

    #[tokio::test]
    async fn connection_is_refused_unless_the_recorded_process_listens() {
        let state = tempfile::tempdir().unwrap();
        let folder = SandboxFolder::new(state.path(), &"glovebox-c".parse().unwrap()).unwrap();
        folder.create(Lifetime::Conversation).unwrap();
        let socket = ServerSocket {
            folder: folder.clone(),
        };
        let listener = UnixListener::bind(folder.socket()).unwrap();
        assert!(
            matches!(socket.connect().await, Err(ConnectError::Gone(_))),
            "there is no record"
        );

        let this = KnownProcess::with_pid(std::process::id().try_into().unwrap()).unwrap();
        folder
            .record_server(&ServerProcesses::from_process(this))
            .unwrap();
        assert!(socket.connect().await.is_ok());

        let mut other = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let known = KnownProcess::with_pid(other.id().try_into().unwrap()).unwrap();
        folder
            .record_server(&ServerProcesses::from_process(known))
            .unwrap();
        let error = socket.connect().await.err().unwrap().to_string();
        assert!(error.contains("instead of the sandbox's server"), "{error}");
        other.kill().unwrap();
        other.wait().unwrap();
        drop(listener);
    }
}
