//! Starts a detached server: its launcher returns when its socket answers, and the server stays.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::SandboxError;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::folder::SandboxFolder;
use super::process::KnownProcess;

/// A server starts in milliseconds; this is for hosts under load.
const START_WAIT: Duration = Duration::from_secs(20);

/// A fork takes far less than a second to become another program.
const BUSY_ATTEMPTS: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// The launcher prints one line.
const MAX_ANSWER_LENGTH: u64 = 4096;

/// What is started, and where.
pub(super) struct ServerStart {
    pub(super) binary: PathBuf,
    pub(super) folder: SandboxFolder,
    pub(super) working_dir: PathBuf,
    pub(super) key: SecretString,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) idle_timeout: Duration,
}

/// What the launcher prints.
#[derive(Deserialize)]
struct Started {
    pid: i32,
}

impl ServerStart {
    /// Ends when the server answers and its process is on record. Not to be dropped before: a launcher that is killed
    /// may leave a server that nobody knows.
    pub(super) async fn run(self) -> Result<(), SandboxError> {
        let started = match timeout(START_WAIT, self.launch()).await {
            Ok(started) => started?,
            Err(_) => return Err(self.failed(format!("no answer within {} s", START_WAIT.as_secs()))),
        };
        let server = KnownProcess::with_pid(started.pid)
            .map_err(|error| self.failed(format!("its process {} is not there: {error}", started.pid)))?;
        self.folder.record_server(&server)
    }

    async fn launch(&self) -> Result<Started, SandboxError> {
        let log = std::fs::File::create(self.folder.log()).map_err(|source| SandboxError::Host {
            doing: format!("creating the log {}", self.folder.log().display()),
            source,
        })?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--socket").arg(self.folder.socket());
        command.arg("--working-dir").arg(&self.working_dir).args([
            "--key-stdin",
            "--detach",
            "--idle-timeout",
        ]);
        command.arg(self.idle_timeout.as_secs().to_string());
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);

        let said = self.converse(command).await.map_err(|source| SandboxError::Host {
            doing: format!("starting {}", self.binary.display()),
            source,
        })?;
        serde_json::from_slice(&said).map_err(|error| {
            self.failed(format!("it printed {:?} ({error})", String::from_utf8_lossy(&said)))
        })
    }

    /// Hands over the key and reads what the launcher prints until it ends.
    async fn converse(&self, mut command: Command) -> std::io::Result<Vec<u8>> {
        let mut launcher = spawn(&mut command).await?;
        if let Some(mut stdin) = launcher.stdin.take() {
            let line = SecretString::from(format!("{}\n", self.key.expose_secret()));
            // One that ends without reading says why in its log.
            let _ = stdin.write_all(line.expose_secret().as_bytes()).await;
        }
        let mut said = Vec::new();
        if let Some(stdout) = launcher.stdout.take() {
            stdout.take(MAX_ANSWER_LENGTH).read_to_end(&mut said).await?;
        }
        launcher.wait().await?;
        Ok(said)
    }

    fn failed(&self, reason: String) -> SandboxError {
        let detail = format!("the action server {} did not start: {reason}", self.binary.display());
        SandboxError::Start { detail, logs: self.folder.log_tail() }
    }
}

/// A file that was just unpacked may be "busy": a process that another thread forks at that moment holds it open for
/// writing until it becomes another program.
async fn spawn(command: &mut Command) -> std::io::Result<Child> {
    for _ in 0..BUSY_ATTEMPTS {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => sleep(BUSY_PAUSE).await,
            spawned => return spawned,
        }
    }
    command.spawn()
}
