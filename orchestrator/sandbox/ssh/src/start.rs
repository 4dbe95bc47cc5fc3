//! Start of one action server on the remote host: one script, preceded by an upload if the binary
//! is missing.
//!
//! On an error, the caller removes what was created.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{Lifetime, SandboxError};
use jiff::Timestamp;
use protocol::SandboxId;
use sandbox_client::provisioning::{start_error, unusable_workspace};
use secrecy::{ExposeSecret, SecretString};

use super::program::{BinaryIdentity, Program};
use super::remote_host::{RemoteHost, trailing_log};
use super::script::{Reply, Script};

/// The launcher waits 10 s for its server. A previous server may have to be terminated first.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// After this many uploads, another process is assumed to delete the file.
const MAX_UPLOADS: u32 = 2;

/// Parameters of a start.
pub(super) struct ServerStart {
    pub(super) remote_host: RemoteHost,
    pub(super) program: Arc<Program>,
    pub(super) sandbox: SandboxId,
    pub(super) lifetime: Lifetime,
    /// Path on the remote host. `None` for a folder inside the sandbox's own.
    pub(super) workspace: Option<String>,
    pub(super) key: SecretString,
    pub(super) idle_timeout: Duration,
}

enum LaunchResult {
    Started(String),
    /// The binary has to be uploaded to this path.
    BinaryMissing(String),
}

impl ServerStart {
    /// Starts the server and returns the path of its socket, on which it already listens.
    pub(super) async fn run(self) -> Result<String, SandboxError> {
        let identity = self.program.identity().await?.clone();
        for _ in 0..=MAX_UPLOADS {
            let seen = self.program.uploads();
            match self.start(&identity).await? {
                LaunchResult::Started(socket) => return Ok(socket),
                LaunchResult::BinaryMissing(path) => {
                    self.program
                        .upload(&self.remote_host, &self.sandbox, &path, seen)
                        .await?;
                }
            }
        }
        Err(start_error(format!(
            "{} on {} is gone each time after it was uploaded",
            identity.file,
            self.remote_host.connection.destination()
        )))
    }

    async fn start(&self, identity: &BinaryIdentity) -> Result<LaunchResult, SandboxError> {
        let idle_seconds = self.idle_timeout.as_secs().to_string();
        let now = Timestamp::now().as_second().to_string();
        let lifetime = self.lifetime.to_string();
        let workspace = self.workspace.as_deref().unwrap_or_default();
        let arguments = [
            &*identity.file,
            &*identity.length,
            &*identity.sha256,
            &*idle_seconds,
            &*lifetime,
            &*now,
            workspace,
        ];
        let key = Bytes::from(format!("{}\n", self.key.expose_secret()));
        let output = self
            .remote_host
            .run(
                Script::Start,
                self.sandbox.as_str(),
                &arguments,
                key,
                START_TIMEOUT,
            )
            .await?;
        let text = output.text();
        match output.last(&text)? {
            Reply {
                status: "started",
                rest,
                ..
            } => Ok(LaunchResult::Started(rest.to_owned())),
            Reply {
                status: "missing",
                rest,
                ..
            } => self.check_platform(rest),
            Reply {
                status: "noexec",
                rest,
                ..
            } => Err(start_error(format!(
                "no program in {rest} on {} can be executed: its file system is mounted with noexec",
                self.destination()
            ))),
            Reply {
                status: "workspace",
                ..
            } => Err(unusable_workspace(
                workspace.as_ref(),
                format_args!("{}, on {}", output.last_stderr_line(), self.destination()),
            )),
            failed @ Reply {
                status: "failed",
                rest,
                ..
            } => {
                let detail = format!(
                    "the action server on {} did not start: it ended with code {rest}",
                    self.destination()
                );
                Err(SandboxError::Start {
                    detail,
                    logs: trailing_log(failed),
                })
            }
            other => Err(output.error_for_reply(&self.sandbox, other)),
        }
    }

    /// Checks that the binary runs on this host before it is uploaded.
    fn check_platform(&self, found: &str) -> Result<LaunchResult, SandboxError> {
        let mut words = found.splitn(3, ' ');
        let (system, machine, path) = (words.next(), words.next(), words.next());
        let (system, machine) = (system.unwrap_or_default(), machine.unwrap_or_default());
        if system != "Linux" || !is_ours(machine) {
            return Err(start_error(format!(
                "{} is {system} on {machine}, the action server is for Linux on {}: take a host of that kind, or a \
                 glovebox that was built for the other",
                self.destination(),
                std::env::consts::ARCH
            )));
        }
        match path {
            Some(path) if path.starts_with('/') => Ok(LaunchResult::BinaryMissing(path.to_owned())),
            _ => Err(start_error(format!(
                "{} names no path for the action server",
                self.destination()
            ))),
        }
    }

    fn destination(&self) -> &str {
        self.remote_host.connection.destination()
    }
}

/// Whether `uname -m` names the architecture that this program and the embedded server were built
/// for.
fn is_ours(machine: &str) -> bool {
    let known = match machine {
        "amd64" => "x86_64",
        "arm64" | "armv8l" => "aarch64",
        other => other,
    };
    known == std::env::consts::ARCH
}
