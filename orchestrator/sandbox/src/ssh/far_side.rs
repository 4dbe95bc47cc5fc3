//! The other side of a connection as a place for sandboxes: what is asked of it, one script an errand.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::sandbox::{Lifetime, SandboxError, SandboxState, SandboxSummary};
use jiff::Timestamp;
use protocol::SandboxId;

use super::connection::{Connection, Ran};
use super::error::SshError;
use super::script::{Answer, Script, answers};
use crate::placement::{KEPT_LOG_LENGTH, conversation_of, start_error};

/// For what only looks.
const LOOK_WAIT: Duration = Duration::from_secs(10);
/// For ending a server, gently and by force, and deleting its files.
const REMOVAL_WAIT: Duration = Duration::from_secs(30);
/// How much of the other side's own words goes into an error, in characters.
const MAX_QUOTED: usize = 300;

pub(super) const UNTIL_REMOVED: &str = "until-removed";
pub(super) const CONVERSATION: &str = "conversation";

/// A connection, and whose sandboxes are meant.
#[derive(Clone)]
pub(super) struct FarSide {
    pub(super) connection: Arc<Connection>,
    pub(super) owner: Arc<str>,
}

/// What is known of a sandbox there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Its server runs and listens at this path.
    Running {
        socket: String,
    },
    Ended,
    Missing,
}

impl FarSide {
    /// Runs a script and hears what it answers.
    pub(super) async fn run(
        &self,
        script: Script,
        sandbox: &str,
        arguments: &[&str],
        input: Bytes,
        limit: Duration,
    ) -> Result<Said, SshError> {
        let mut all = vec![&*self.owner, sandbox];
        all.extend_from_slice(arguments);
        let ran = self.connection.run(script.command(&all), input, limit).await?;
        if ran.code.is_none() && ran.stdout.is_empty() && ran.stderr.is_empty() {
            return Err(SshError::unreachable(
                self.connection.place(),
                "it ended in the middle of a command",
            ));
        }
        Ok(Said { place: self.connection.place().to_owned(), ran })
    }

    pub(super) async fn state(&self, sandbox: &SandboxId) -> Result<State, SandboxError> {
        let said = self.run(Script::State, sandbox.as_str(), &[], Bytes::new(), LOOK_WAIT).await?;
        let text = said.text();
        match said.last(&text)? {
            Answer { word: "running", rest, .. } => Ok(State::Running { socket: rest.to_owned() }),
            Answer { word: "ended", .. } => Ok(State::Ended),
            Answer { word: "none", .. } => Ok(State::Missing),
            other => Err(said.refusal(sandbox, other)),
        }
    }

    /// Ends what runs in a sandbox and deletes its folder. One that is not there is no error.
    pub(super) async fn remove(&self, sandbox: &SandboxId) -> Result<(), SandboxError> {
        let said = self.run(Script::Remove, sandbox.as_str(), &[], Bytes::new(), REMOVAL_WAIT).await?;
        let text = said.text();
        match said.last(&text)? {
            Answer { word: "removed", .. } => Ok(()),
            other => Err(SandboxError::Host {
                doing: format!("removing the sandbox {sandbox} on {}", said.place),
                source: std::io::Error::other(said.refusal(sandbox, other).to_string()),
            }),
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<SandboxSummary>, SandboxError> {
        let said = self.run(Script::List, "", &[], Bytes::new(), REMOVAL_WAIT).await?;
        let text = said.text();
        if said.last(&text)?.word != "listed" {
            return Err(start_error(format!("{} lists more sandboxes than can be read", said.place)));
        }
        let sandboxes = answers(&text).filter(|answer| answer.word == "sandbox");
        Ok(sandboxes.filter_map(|answer| placed(answer.rest)).collect())
    }

    pub(super) async fn logs(&self, sandbox: &SandboxId) -> Result<String, SandboxError> {
        let said = self.run(Script::Logs, sandbox.as_str(), &[], Bytes::new(), LOOK_WAIT).await?;
        let text = said.text();
        Ok(log_in(said.last(&text)?))
    }
}

/// What the other side said to a script.
pub(super) struct Said {
    place: String,
    ran: Ran,
}

impl Said {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.ran.stdout).into_owned()
    }

    /// The script's last word. Without one, it was not run.
    pub(super) fn last<'a>(&self, text: &'a str) -> Result<Answer<'a>, SandboxError> {
        // A log may hold anything, our word too: nothing that comes after one is ours.
        let mut last = None;
        for answer in answers(text) {
            last = Some(answer);
            if matches!(answer.word, "failed" | "log") {
                break;
            }
        }
        last.ok_or_else(|| {
            let code = self.ran.code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            let words =
                [self.complaint(), last_line(&self.ran.stdout)].into_iter().find(|words| !words.is_empty());
            let words = words.map(|words| format!(": {words:?}")).unwrap_or_default();
            start_error(format!(
                "{} did not run a script in /bin/sh{code}{words}; the account there needs a POSIX shell",
                self.place
            ))
        })
    }

    /// The last line that came on standard error.
    pub(super) fn complaint(&self) -> String {
        last_line(&self.ran.stderr)
    }

    /// The error for an answer that means no, whatever was asked.
    pub(super) fn refusal(&self, sandbox: &SandboxId, answer: Answer<'_>) -> SandboxError {
        let Self { place, .. } = self;
        let rest = one_line(answer.rest);
        start_error(match answer.word {
            "foreign" => {
                format!("the sandbox {sandbox} on {place} belongs to another installation: remove it there")
            }
            "stuck" => format!(
                "the process {rest} of the sandbox {sandbox} on {place} does not end when it is killed"
            ),
            "left" => format!("the folder {rest} on {place} cannot be removed: {}", self.complaint()),
            "unwritable" => format!(
                "{rest} on {place} cannot be written ({}): make room, or make it writable",
                self.complaint()
            ),
            "damaged" => format!("the action server arrived damaged on {place}: is there room left?"),
            word => format!("{place} gave an answer that means nothing here: {:?}", one_line(word)),
        })
    }
}

/// The log that follows an answer.
pub(super) fn log_in(answer: Answer<'_>) -> String {
    let kept = answer.after.len().saturating_sub(KEPT_LOG_LENGTH);
    let log = answer.after.char_indices().find(|(place, _)| *place >= kept);
    log.and_then(|(place, _)| answer.after.get(place..)).unwrap_or_default().to_owned()
}

fn placed(line: &str) -> Option<SandboxSummary> {
    let mut words = line.split(' ');
    let (name, lifetime, created, condition) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(SandboxSummary {
        sandbox: name.parse().ok()?,
        conversation: Some(conversation_of(name)?),
        lifetime: if lifetime == UNTIL_REMOVED { Lifetime::UntilRemoved } else { Lifetime::Conversation },
        image: None,
        condition: if condition == "running" { SandboxState::Running } else { SandboxState::Ended },
        created_at: created.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok()),
    })
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().map(one_line).find(|line| !line.is_empty()).unwrap_or_default()
}

/// Fit for a terminal and short.
fn one_line(text: &str) -> String {
    let shown = text.trim().chars().take(MAX_QUOTED).map(|c| if c.is_control() { ' ' } else { c });
    shown.collect()
}
