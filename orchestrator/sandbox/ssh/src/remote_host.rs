//! The sandboxes of a remote host: queried, listed and removed by one script per operation.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{Lifetime, SandboxError, SandboxState, SandboxSummary};
use jiff::Timestamp;
use protocol::SandboxId;
use sandbox_client::provisioning::{MAX_LOG_BYTES, conversation_of, start_error};

use super::connection::{CommandOutput, Connection};
use super::error::SshError;
use super::script::{Reply, Script, parse_replies};

/// Timeout of scripts that only read.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to terminate a server, with `SIGKILL` if necessary, and to delete its files.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of remote output that is quoted in an error.
const MAX_QUOTED_CHARS: usize = 300;

/// A connected host, restricted to the sandboxes of one owner.
#[derive(Clone)]
pub(super) struct RemoteHost {
    pub(super) connection: Arc<Connection>,
    pub(super) owner: Arc<str>,
}

/// State of a sandbox on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// The server runs and listens on this socket.
    Running {
        socket: String,
    },
    Ended,
    Missing,
}

impl RemoteHost {
    /// Runs a script and collects its output.
    pub(super) async fn run(
        &self,
        script: Script,
        sandbox: &str,
        arguments: &[&str],
        input: Bytes,
        limit: Duration,
    ) -> Result<ScriptOutput, SshError> {
        let mut all = vec![&*self.owner, sandbox];
        all.extend_from_slice(arguments);
        let command = self
            .connection
            .run(script.command(&all), input, limit)
            .await?;
        if command.code.is_none() && command.stdout.is_empty() && command.stderr.is_empty() {
            return Err(SshError::unreachable(
                self.connection.destination(),
                "it ended in the middle of a command",
            ));
        }
        Ok(ScriptOutput {
            destination: self.connection.destination().to_owned(),
            command,
        })
    }

    pub(super) async fn state(&self, sandbox: &SandboxId) -> Result<State, SandboxError> {
        let output = self
            .run(
                Script::State,
                sandbox.as_str(),
                &[],
                Bytes::new(),
                QUERY_TIMEOUT,
            )
            .await?;
        let text = output.text();
        match output.last(&text)? {
            Reply {
                status: "running",
                rest,
                ..
            } => Ok(State::Running {
                socket: rest.to_owned(),
            }),
            Reply {
                status: "ended", ..
            } => Ok(State::Ended),
            Reply { status: "none", .. } => Ok(State::Missing),
            other => Err(output.error_for_reply(sandbox, other)),
        }
    }

    /// Terminates the processes of a sandbox and deletes its folder. Succeeds if the sandbox does
    /// not exist.
    pub(super) async fn remove(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let output = self
            .run(
                Script::Remove,
                sandbox.as_str(),
                &[],
                Bytes::new(),
                REMOVAL_TIMEOUT,
            )
            .await?;
        let text = output.text();
        match output.last(&text)? {
            Reply {
                status: "removed", ..
            } => Ok(()),
            other => Err(SandboxError::host(
                "remove",
                format_args!("the sandbox {sandbox} on {}", output.destination),
                io::Error::other(output.error_for_reply(sandbox, other)),
            )),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let output = self
            .run(Script::List, "", &[], Bytes::new(), REMOVAL_TIMEOUT)
            .await?;
        let text = output.text();
        if output.last(&text)?.status != "listed" {
            return Err(start_error(format!(
                "{} lists more sandboxes than can be read",
                output.destination
            )));
        }
        let sandboxes = parse_replies(&text).filter(|reply| reply.status == "sandbox");
        Ok(sandboxes
            .filter_map(|reply| parse_summary(reply.rest))
            .collect())
    }

    pub(super) async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        let output = self
            .run(
                Script::Logs,
                sandbox.as_str(),
                &[],
                Bytes::new(),
                QUERY_TIMEOUT,
            )
            .await?;
        let text = output.text();
        Ok(trailing_log(output.last(&text)?))
    }
}

/// Output of a script.
pub(super) struct ScriptOutput {
    destination: String,
    command: CommandOutput,
}

impl ScriptOutput {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.command.stdout).into_owned()
    }

    /// Returns the last reply. `Err` if there is none, which means that the script did not run.
    pub(super) fn last<'a>(&self, text: &'a str) -> Result<Reply<'a>, SandboxError> {
        // A log may contain lines that look like replies, so that parsing stops where a log starts.
        let mut last = None;
        for reply in parse_replies(text) {
            last = Some(reply);
            if matches!(reply.status, "failed" | "log") {
                break;
            }
        }
        last.ok_or_else(|| {
            let code = self.command.code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            let words = [self.last_stderr_line(), last_line(&self.command.stdout)]
                .into_iter()
                .find(|words| !words.is_empty());
            let words = words.map(|words| format!(": {words:?}")).unwrap_or_default();
            start_error(format!(
                "{} did not run a script in /bin/sh{code}{words}; the account there needs a POSIX shell",
                self.destination
            ))
        })
    }

    pub(super) fn last_stderr_line(&self) -> String {
        last_line(&self.command.stderr)
    }

    /// Maps a reply that reports a failure to an error.
    pub(super) fn error_for_reply(&self, sandbox: &SandboxId, reply: Reply<'_>) -> SandboxError {
        let Self { destination, .. } = self;
        let rest = one_line(reply.rest);
        start_error(match reply.status {
            "foreign" => {
                format!(
                    "the sandbox {sandbox} on {destination} belongs to another installation: remove it there"
                )
            }
            "stuck" => format!(
                "the process {rest} of the sandbox {sandbox} on {destination} does not end when it is killed"
            ),
            "left" => {
                format!(
                    "cannot remove the folder {rest} on {destination}: {}",
                    self.last_stderr_line()
                )
            }
            "unwritable" => format!(
                "cannot write {rest} on {destination}: {}; make room, or make it writable",
                self.last_stderr_line()
            ),
            "damaged" => {
                format!("the action server arrived damaged on {destination}: is there room left?")
            }
            status => format!(
                "{destination} gave an unknown reply: {:?}",
                one_line(status)
            ),
        })
    }
}

/// Returns the last [`MAX_LOG_BYTES`] bytes of the log that follows a reply.
pub(super) fn trailing_log(reply: Reply<'_>) -> String {
    let kept = reply.after.len().saturating_sub(MAX_LOG_BYTES);
    let log = reply.after.char_indices().find(|(index, _)| *index >= kept);
    log.and_then(|(index, _)| reply.after.get(index..))
        .unwrap_or_default()
        .to_owned()
}

fn parse_summary(line: &str) -> Option<SandboxSummary> {
    let mut words = line.split(' ');
    let (name, lifetime, created, condition) =
        (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(SandboxSummary {
        // A later version may know more lifetimes. Sweeps keep what they do not understand.
        lifetime: lifetime.parse().unwrap_or(Lifetime::UntilRemoved),
        condition: if condition == "running" {
            SandboxState::Running
        } else {
            SandboxState::Ended
        },
        created_at: created
            .parse()
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok()),
        ..SandboxSummary::new(name.parse().ok()?, Some(conversation_of(name)?))
    })
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .rev()
        .map(one_line)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
}

/// Replaces control characters and truncates to [`MAX_QUOTED_CHARS`].
fn one_line(text: &str) -> String {
    let shown = text
        .trim()
        .chars()
        .take(MAX_QUOTED_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c });
    shown.collect()
}
