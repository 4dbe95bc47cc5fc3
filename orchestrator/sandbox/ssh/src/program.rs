//! The action server's binary on the remote host. It is stored under its hash, so that it is
//! uploaded once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::SandboxError;
use protocol::SandboxId;
use ring::digest;
use russh_sftp::client::SftpSession;
use sandbox_client::ServerBinary;
use sandbox_client::provisioning::start_error;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::connection::Connection;
use super::remote_host::RemoteHost;
use super::script::{Reply, Script};
use std::sync::Arc;

/// Time for the whole file over a slow network.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of a single SFTP request.
const SFTP_TIMEOUT_SECS: u64 = 20;

/// The binary, and the lock that serializes its uploads.
pub(super) struct Program {
    server: ServerBinary,
    identity: OnceCell<BinaryIdentity>,
    /// One upload at a time. Waiting callers then find the file in place.
    uploading: Semaphore,
    uploads: AtomicU64,
}

/// Name of the file, and the values that verify it.
#[derive(Debug, Clone)]
pub(super) struct BinaryIdentity {
    pub(super) file: String,
    pub(super) length: String,
    /// `sha256:…`. The prefix keeps tools that scan command lines for secrets from reporting the
    /// hash.
    pub(super) sha256: String,
}

impl Program {
    pub(super) fn new(server: ServerBinary) -> Self {
        Self {
            server,
            identity: OnceCell::new(),
            uploading: Semaphore::new(1),
            uploads: AtomicU64::new(0),
        }
    }

    pub(super) async fn identity(&self) -> Result<&BinaryIdentity, SandboxError> {
        let read = async || {
            let bytes = self.server.bytes().await?;
            let sha256 = hex::encode(digest::digest(&digest::SHA256, &bytes).as_ref());
            let short = sha256.get(..16).unwrap_or_default();
            Ok(BinaryIdentity {
                file: format!("action-server-{short}"),
                length: bytes.len().to_string(),
                sha256: format!("sha256:{sha256}"),
            })
        };
        self.identity.get_or_try_init(read).await
    }

    /// Number of completed uploads. Read before a start, and passed to [`Program::upload`].
    pub(super) fn uploads(&self) -> u64 {
        self.uploads.load(Ordering::Acquire)
    }

    /// Uploads the file to `path`, unless another caller has done so since there were `seen`
    /// uploads.
    pub(super) async fn upload(
        &self,
        remote_host: &RemoteHost,
        sandbox: &SandboxId,
        path: &str,
        seen: u64,
    ) -> Result<(), SandboxError> {
        let closed = |_| start_error("the upload was given up");
        let _permit = self.uploading.acquire().await.map_err(closed)?;
        if self.uploads() != seen {
            return Ok(());
        }
        let identity = self.identity().await?;
        let bytes = Bytes::from(self.server.bytes().await?);
        let part = format!("{}.part-{}", identity.file, nonce());
        let by_file = timeout(
            UPLOAD_TIMEOUT,
            write(&remote_host.connection, &part_of(path, &part), &bytes),
        )
        .await;
        let (how, input) = match by_file {
            Ok(Ok(())) => ("file", Bytes::new()),
            // The upload through standard input reports the same problem with a better message.
            Ok(Err(reason)) => {
                tracing::debug!(
                    reason,
                    "uploading the action server without the file protocol"
                );
                ("stdin", bytes)
            }
            Err(_) => ("stdin", bytes),
        };
        let arguments = [
            &*identity.file,
            &*identity.length,
            &*identity.sha256,
            &*part,
            how,
        ];
        let output = remote_host
            .run(Script::Install, "", &arguments, input, UPLOAD_TIMEOUT)
            .await?;
        let text = output.text();
        match output.last(&text)? {
            Reply {
                status: "installed",
                ..
            } => {
                self.uploads.fetch_add(1, Ordering::Release);
                Ok(())
            }
            other => Err(output.error_for_reply(sandbox, other)),
        }
    }
}

/// The temporary file is in the folder of the final one, so that a rename is atomic.
fn part_of(path: &str, part: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{part}"),
        None => part.to_owned(),
    }
}

async fn write(connection: &Arc<Connection>, path: &str, bytes: &Bytes) -> Result<(), String> {
    let stream = connection
        .subsystem("sftp")
        .await
        .map_err(|error| error.to_string())?;
    let files = SftpSession::new(stream)
        .await
        .map_err(|error| error.to_string())?;
    files.set_timeout(SFTP_TIMEOUT_SECS);
    let mut file = files
        .create(path)
        .await
        .map_err(|error| error.to_string())?;
    file.write_all(bytes)
        .await
        .map_err(|error| error.to_string())?;
    file.shutdown().await.map_err(|error| error.to_string())?;
    let _ = files.close().await; // the file is complete; dropping the session closes the channel
    Ok(())
}

/// Returns a unique suffix, so that an immediately repeated start does not write to the same
/// temporary file.
fn nonce() -> String {
    let mut bytes = [0; 8];
    match ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes) {
        Ok(()) => hex::encode(bytes),
        Err(_) => std::process::id().to_string(), // unique enough: uploads of one process are serialized
    }
}
