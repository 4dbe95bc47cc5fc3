//! The action server's file on the other side: kept under its hash, so that it is uploaded once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::SandboxError;
use protocol::SandboxId;
use ring::digest;
use russh_sftp::client::SftpSession;
use tokio::io::AsyncWriteExt;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::timeout;

use super::connection::Connection;
use super::far_side::FarSide;
use super::script::{Answer, Script};
use crate::ServerBinary;
use crate::host_secret::hex;
use crate::placement::start_error;
use std::sync::Arc;

/// For the whole file over a slow line.
const UPLOAD_WAIT: Duration = Duration::from_secs(120);
/// For an answer of the file protocol.
const SFTP_SECONDS: u64 = 20;

/// The program, and who uploads it now.
pub(super) struct Program {
    server: ServerBinary,
    identity: OnceCell<Identity>,
    /// One upload at a time: who waits finds it done.
    uploading: Semaphore,
    uploads: AtomicU64,
}

/// What names the file and tells whether it is whole.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) file: String,
    pub(super) length: String,
    /// `sha256:…`: as the argument of a command, not to be taken for a key by whoever looks for one.
    pub(super) sha256: String,
}

impl Program {
    pub(super) fn new(server: ServerBinary) -> Self {
        Self { server, identity: OnceCell::new(), uploading: Semaphore::new(1), uploads: AtomicU64::new(0) }
    }

    pub(super) async fn identity(&self) -> Result<&Identity, SandboxError> {
        let read = async || {
            let bytes = self.server.bytes().await?;
            let sha256 = hex(digest::digest(&digest::SHA256, &bytes).as_ref());
            let short = sha256.get(..16).unwrap_or_default();
            Ok(Identity {
                file: format!("action-server-{short}"),
                length: bytes.len().to_string(),
                sha256: format!("sha256:{sha256}"),
            })
        };
        self.identity.get_or_try_init(read).await
    }

    /// How often it was uploaded: to be asked before a start, and told to [`Program::upload`].
    pub(super) fn uploads(&self) -> u64 {
        self.uploads.load(Ordering::Acquire)
    }

    /// Puts the file at `path` there, unless somebody else has done it since there were `seen` uploads.
    pub(super) async fn upload(
        &self,
        far_side: &FarSide,
        sandbox: &SandboxId,
        path: &str,
        seen: u64,
    ) -> Result<(), SandboxError> {
        let closed = |_| start_error("the upload was given up");
        let _turn = self.uploading.acquire().await.map_err(closed)?;
        if self.uploads() != seen {
            return Ok(());
        }
        let identity = self.identity().await?;
        let bytes = Bytes::from(self.server.bytes().await?);
        let part = format!("{}.part-{}", identity.file, nonce());
        let by_file = timeout(UPLOAD_WAIT, write(&far_side.connection, &part_of(path, &part), &bytes)).await;
        let (how, input) = match by_file {
            Ok(Ok(())) => ("file", Bytes::new()),
            // Whatever it was: the other way says so too, and in words.
            Ok(Err(reason)) => {
                tracing::debug!(reason, "uploading the action server without the file protocol");
                ("stdin", bytes)
            }
            Err(_) => ("stdin", bytes),
        };
        let arguments = [&*identity.file, &*identity.length, &*identity.sha256, &*part, how];
        let said = far_side.run(Script::Install, "", &arguments, input, UPLOAD_WAIT).await?;
        let text = said.text();
        match said.last(&text)? {
            Answer { word: "installed", .. } => {
                self.uploads.fetch_add(1, Ordering::Release);
                Ok(())
            }
            other => Err(said.refusal(sandbox, other)),
        }
    }
}

/// In the same folder as the file: a rename moves nothing.
fn part_of(path: &str, part: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{part}"),
        None => part.to_owned(),
    }
}

async fn write(connection: &Arc<Connection>, path: &str, bytes: &Bytes) -> Result<(), String> {
    let stream = connection.subsystem("sftp").await.map_err(|error| error.to_string())?;
    let files = SftpSession::new(stream).await.map_err(|error| error.to_string())?;
    files.set_timeout(SFTP_SECONDS);
    let mut file = files.create(path).await.map_err(|error| error.to_string())?;
    file.write_all(bytes).await.map_err(|error| error.to_string())?;
    file.shutdown().await.map_err(|error| error.to_string())?;
    let _ = files.close().await; // the file is whole; the channel ends when it is dropped
    Ok(())
}

/// What no other upload's name has: a start that is repeated at once must not write into the same file.
fn nonce() -> String {
    let mut bytes = [0; 8];
    match ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes) {
        Ok(()) => hex(&bytes),
        Err(_) => std::process::id().to_string(), // a second upload of this program waits for the first
    }
}
