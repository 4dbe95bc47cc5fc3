//! Starts a server that outlives this program, and records its process.

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
use super::isolation::LaunchCommand;
use crate::confine::Preparation;

pub(super) use isolated::SandboxIsolation;

/// A server starts in milliseconds; the timeout allows for hosts under load.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A fork executes another program in far less than a second.
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
    /// The resource limits.
    pub(super) limits: SandboxLimits,
    /// The isolation. `None` without.
    pub(super) isolation: Option<SandboxIsolation>,
}

/// The resource limits of a sandbox.
pub(super) struct SandboxLimits {
    pub(super) bounds: Bounds,
    /// The name of its control group.
    pub(super) name: String,
    pub(super) resources: ResourceLimits,
    pub(super) launcher: PathBuf,
}

impl ServerStart {
    /// Returns when the server responds and its process is recorded. Must not be dropped before: a
    /// launcher that is killed may leave an unrecorded server.
    pub(super) async fn run(self) -> Result<(), SandboxError> {
        match &self.isolation {
            Some(isolation) => self.start_isolated(isolation).await,
            None => self.start_unconfined().await,
        }
    }

    /// Returns the command that enters the limits, performs its preparation, and executes the
    /// program that is appended.
    fn limited_command(&self, preparation: Preparation) -> Result<LaunchCommand, SandboxError> {
        let SandboxLimits {
            bounds,
            name,
            resources,
            launcher,
        } = &self.limits;
        bounds
            .command(launcher, name, resources, preparation)
            .map_err(|source| {
                SandboxError::host(
                    "limit",
                    format_args!("the resources of the sandbox {name}"),
                    source,
                )
            })
    }

    /// Adds the arguments of the server. `mode` is the flag by which it detaches.
    fn add_server_arguments(&self, command: &mut Command, mode: &str) {
        command
            .arg("serve")
            .arg("--socket")
            .arg(self.folder.socket());
        command.arg("--working-dir").arg(&self.working_dir).args([
            "--key-stdin",
            mode,
            "--idle-timeout",
        ]);
        command.arg(self.idle_timeout.as_secs().to_string());
    }

    /// Starts the server with its output in the log, and passes the key.
    async fn spawn(
        &self,
        launch: &mut LaunchCommand,
        stdout: Stdio,
    ) -> Result<Child, SandboxError> {
        let LaunchCommand { command, input } = launch;
        let log = self.folder.log();
        let log = std::fs::File::create(&log).map_err(|source| {
            SandboxError::host("create", format_args!("the log {}", log.display()), source)
        })?;
        let mut started = spawn(command.stdin(Stdio::piped()).stdout(stdout).stderr(log)).await;
        if let Some(mut stdin) = started
            .as_mut()
            .ok()
            .and_then(|started| started.stdin.take())
        {
            let line = SecretString::from(format!("{}\n", self.key.expose_secret()));
            // A launcher or a server that exits before it has read its input reports the cause in
            // the log.
            let _ = stdin.write_all(input).await;
            let _ = stdin.write_all(line.expose_secret().as_bytes()).await;
        }
        started.map_err(|source| {
            SandboxError::host("start", command.as_std().get_program().display(), source)
        })
    }

    fn failed(&self, reason: impl std::fmt::Display) -> SandboxError {
        let detail = format!(
            "the action server {} did not start: {reason}",
            self.binary.display()
        );
        SandboxError::Start {
            detail,
            logs: self.folder.log_tail(),
        }
    }
}

/// Retries while a file that was just unpacked is "busy": a process that another thread forked
/// meanwhile has it open for writing until it executes another program.
async fn spawn(command: &mut Command) -> std::io::Result<Child> {
    for _ in 0..MAX_BUSY_ATTEMPTS {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                sleep(BUSY_RETRY_INTERVAL).await;
            }
            spawned => return spawned,
        }
    }
    command.spawn()
}
