//! Starts a server that outlives this program, and notes which process it is.

mod isolated;
mod unconfined;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use engine::sandbox::{ResourceLimits, SandboxError};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use super::Bounds;
use super::folder::SandboxFolder;
use crate::confine::Preparation;

pub(super) use isolated::Isolated;

/// A server starts in milliseconds; the timeout allows for hosts under load.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A fork takes far less than a second to become another program.
const MAX_BUSY_ATTEMPTS: u32 = 100;
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Parameters of a start.
pub(super) struct ServerStart {
    pub(super) binary: PathBuf,
    pub(super) folder: SandboxFolder,
    pub(super) working_dir: PathBuf,
    pub(super) key: SecretString,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) idle_timeout: Duration,
    /// What bounds it.
    pub(super) bounded: Bounded,
    /// How it is kept in; nothing: it is not.
    pub(super) isolated: Option<Isolated>,
}

/// What bounds a sandbox.
pub(super) struct Bounded {
    pub(super) bounds: Bounds,
    /// What its control group is called.
    pub(super) name: String,
    pub(super) resources: ResourceLimits,
    pub(super) launcher: PathBuf,
}

impl ServerStart {
    /// Ends when the server answers and its process is on record. Not to be dropped before: a launcher that is killed
    /// may leave a server that nobody knows.
    pub(super) async fn run(self) -> Result<(), SandboxError> {
        match &self.isolated {
            Some(isolated) => self.start_isolated(isolated).await,
            None => self.start_unconfined().await,
        }
    }

    /// What enters the sandbox's bounds, prepares itself so, and becomes the program that is appended.
    fn bounded(&self, preparation: Preparation) -> Result<Command, SandboxError> {
        let Bounded { bounds, name, resources, launcher } = &self.bounded;
        bounds.begin(launcher, name, resources, preparation).map_err(|source| SandboxError::Host {
            doing: format!("bounding what the sandbox {name} uses"),
            source,
        })
    }

    /// The arguments of a server that goes its own way, as `how` says.
    fn serve(&self, command: &mut Command, how: &str) {
        command.arg("serve").arg("--socket").arg(self.folder.socket());
        command.arg("--working-dir").arg(&self.working_dir).args(["--key-stdin", how, "--idle-timeout"]);
        command.arg(self.idle_timeout.as_secs().to_string());
    }

    /// Starts it with what it says going to the log, and hands over the key.
    async fn spawn(&self, command: &mut Command, stdout: Stdio) -> Result<Child, SandboxError> {
        let log = std::fs::File::create(self.folder.log()).map_err(|source| SandboxError::Host {
            doing: format!("creating the log {}", self.folder.log().display()),
            source,
        })?;
        let mut started = spawn(command.stdin(Stdio::piped()).stdout(stdout).stderr(log)).await;
        if let Some(mut stdin) = started.as_mut().ok().and_then(|started| started.stdin.take()) {
            let line = SecretString::from(format!("{}\n", self.key.expose_secret()));
            // One that ends without reading says why in its log.
            let _ = stdin.write_all(line.expose_secret().as_bytes()).await;
        }
        started.map_err(|source| SandboxError::Host {
            doing: format!("starting {}", command.as_std().get_program().display()),
            source,
        })
    }

    fn failed(&self, reason: impl std::fmt::Display) -> SandboxError {
        let detail = format!("the action server {} did not start: {reason}", self.binary.display());
        SandboxError::Start { detail, logs: self.folder.log_tail() }
    }
}

/// A file that was just unpacked may be "busy": a process that another thread forks at that moment holds it open for
/// writing until it becomes another program.
async fn spawn(command: &mut Command) -> std::io::Result<Child> {
    for _ in 0..MAX_BUSY_ATTEMPTS {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => sleep(BUSY_RETRY_INTERVAL).await,
            spawned => return spawned,
        }
    }
    command.spawn()
}
