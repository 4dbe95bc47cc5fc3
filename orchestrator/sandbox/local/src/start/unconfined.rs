//! The start of a server without isolation. It daemonizes, and its launcher returns when its socket
//! responds.

use std::process::Stdio;

use engine::sandbox::SandboxError;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::super::process::{KnownProcess, ServerProcesses};
use super::{START_TIMEOUT, ServerStart};
use crate::confine::Preparation;

/// Maximum length of the line that the launcher prints.
const MAX_LAUNCHER_OUTPUT_BYTES: u64 = 4096;

/// The output of the launcher.
#[derive(Deserialize)]
struct LauncherOutput {
    pid: i32,
}

impl ServerStart {
    pub(super) async fn start_unconfined(&self) -> Result<(), SandboxError> {
        let started = match timeout(START_TIMEOUT, self.launch()).await {
            Ok(started) => started?,
            Err(_) => {
                return Err(
                    self.failed(format!("no response within {} s", START_TIMEOUT.as_secs()))
                );
            }
        };
        let server = KnownProcess::with_pid(started.pid).map_err(|error| {
            self.failed(format!(
                "its process {} does not exist: {error}",
                started.pid
            ))
        })?;
        self.folder
            .record_server(&ServerProcesses::from_process(server))
    }

    async fn launch(&self) -> Result<LauncherOutput, SandboxError> {
        let mut launch = self.limited_command(Preparation::default())?;
        let command = launch.command.arg(&self.binary);
        self.add_server_arguments(command, "--detach");
        command
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .kill_on_drop(true);
        let mut launcher = self.spawn(&mut launch, Stdio::piped()).await?;
        let mut output = Vec::new();
        let exited = async {
            if let Some(stdout) = launcher.stdout.take() {
                stdout
                    .take(MAX_LAUNCHER_OUTPUT_BYTES)
                    .read_to_end(&mut output)
                    .await?;
            }
            launcher.wait().await
        };
        exited
            .await
            .map_err(|error| self.failed(format!("reading its output: {error}")))?;
        serde_json::from_slice(&output).map_err(|error| {
            self.failed(format!(
                "it printed {:?} ({error})",
                String::from_utf8_lossy(&output)
            ))
        })
    }
}
