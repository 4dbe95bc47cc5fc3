//! The start of one server on the other side: one script when its file is there already, an upload before it when not.
//!
//! Leaves what it created to its caller, who removes it when this ends in an error.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{Lifetime, SandboxError};
use jiff::Timestamp;
use protocol::SandboxId;
use secrecy::{ExposeSecret, SecretString};

use super::far_side::{CONVERSATION, FarSide, UNTIL_REMOVED, log_in};
use super::program::{Identity, Program};
use super::script::{Answer, Script};
use crate::placement::{start_error, unusable_workspace};

/// The launcher gives its server 10 s; what is left from before may have to be ended first.
const START_WAIT: Duration = Duration::from_secs(30);
/// A file that is not there after it was uploaded as often is taken away by somebody.
const MAX_UPLOADS: u32 = 2;

/// What is started, and where.
pub(super) struct ServerStart {
    pub(super) far_side: FarSide,
    pub(super) program: Arc<Program>,
    pub(super) sandbox: SandboxId,
    pub(super) lifetime: Lifetime,
    /// A path on the other side.
    pub(super) workspace: Option<String>,
    pub(super) key: SecretString,
    pub(super) idle_timeout: Duration,
}

enum Outcome {
    Started(String),
    /// The server's file is to be put at this path.
    Missing(String),
}

impl ServerStart {
    /// Ends when the server listens: with the path of its socket.
    pub(super) async fn run(self) -> Result<String, SandboxError> {
        let identity = self.program.identity().await?.clone();
        for _ in 0..=MAX_UPLOADS {
            let seen = self.program.uploads();
            match self.start(&identity).await? {
                Outcome::Started(socket) => return Ok(socket),
                Outcome::Missing(path) => {
                    self.program.upload(&self.far_side, &self.sandbox, &path, seen).await?;
                }
            }
        }
        Err(start_error(format!(
            "{} on {} is gone each time after it was uploaded",
            identity.file,
            self.far_side.connection.place()
        )))
    }

    async fn start(&self, identity: &Identity) -> Result<Outcome, SandboxError> {
        let idle_seconds = self.idle_timeout.as_secs().to_string();
        let now = Timestamp::now().as_second().to_string();
        let lifetime = match self.lifetime {
            Lifetime::Conversation => CONVERSATION,
            Lifetime::UntilRemoved => UNTIL_REMOVED,
        };
        let workspace = self.workspace.as_deref().unwrap_or_default();
        let arguments = [
            &*identity.file,
            &*identity.length,
            &*identity.sha256,
            &*idle_seconds,
            lifetime,
            &*now,
            workspace,
        ];
        let key = Bytes::from(format!("{}\n", self.key.expose_secret()));
        let said =
            self.far_side.run(Script::Start, self.sandbox.as_str(), &arguments, key, START_WAIT).await?;
        let text = said.text();
        match said.last(&text)? {
            Answer { word: "started", rest, .. } => Ok(Outcome::Started(rest.to_owned())),
            Answer { word: "missing", rest, .. } => self.missing(rest),
            Answer { word: "workspace", .. } => Err(unusable_workspace(
                workspace.as_ref(),
                format_args!("{}, on {}", said.complaint(), self.place()),
            )),
            failed @ Answer { word: "failed", rest, .. } => {
                let detail =
                    format!("the action server on {} did not start: it ended with code {rest}", self.place());
                Err(SandboxError::Start { detail, logs: log_in(failed) })
            }
            other => Err(said.refusal(&self.sandbox, other)),
        }
    }

    /// The file is not there; it would not run everywhere either.
    fn missing(&self, found: &str) -> Result<Outcome, SandboxError> {
        let mut words = found.splitn(3, ' ');
        let (system, machine, path) = (words.next(), words.next(), words.next());
        let (system, machine) = (system.unwrap_or_default(), machine.unwrap_or_default());
        if system != "Linux" || !is_ours(machine) {
            return Err(start_error(format!(
                "{} is {system} on {machine}, the action server is for Linux on {}: take a host of that kind, or a \
                 glovebox that was built for the other",
                self.place(),
                std::env::consts::ARCH
            )));
        }
        match path {
            Some(path) if path.starts_with('/') => Ok(Outcome::Missing(path.to_owned())),
            _ => Err(start_error(format!("{} names no place for the action server", self.place()))),
        }
    }

    fn place(&self) -> &str {
        self.far_side.connection.place()
    }
}

/// Whether `uname -m` means the processor that this program, and the server in it, was built for.
fn is_ours(machine: &str) -> bool {
    let known = match machine {
        "amd64" => "x86_64",
        "arm64" | "armv8l" => "aarch64",
        other => other,
    };
    known == std::env::consts::ARCH
}
