//! Errors of starting a command. The command was not run, so it can be retried.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::libc;
use protocol::Observation;

/// Reason why the command was not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// No terminal or process is available, or the program does not exist.
    #[error("cannot start the shell {}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    /// It was started, but shows no prompt.
    #[error("cannot start the shell: no prompt within {} seconds", .0.as_secs())]
    NoPrompt(Duration),
    /// It exited before its first prompt.
    #[error("the shell exited with exit code {status} before its first prompt")]
    Ended { status: i32 },
    /// The terminal is closed.
    #[error("cannot send the command to the shell")]
    Command(#[source] io::Error),
    /// The folder of a static command does not exist.
    #[error("{} is not a folder to run a command in", .0.display())]
    NoFolder(PathBuf),
    /// The server is shutting down.
    #[error("the shell was shut down")]
    Stopped,
}

impl StartError {
    /// Converts it to an observation. Not an HTTP error, because the agent can react to most of
    /// them.
    pub(super) fn into_observation(self) -> Observation {
        let id = match &self {
            Self::Stopped => "shell_stopped",
            Self::NoFolder(_) => "no_such_folder",
            Self::Spawn { .. } | Self::NoPrompt(_) | Self::Ended { .. } | Self::Command(_) => {
                "shell_start"
            }
        };
        let advice = self.advice();
        let text = format!("ERROR: {:#}.{advice}", anyhow::Error::new(self));
        Observation::error(text, id)
    }

    /// Returns what to do about a broken image.
    fn advice(&self) -> &'static str {
        match self {
            Self::Spawn { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                " This machine has no shell. Use an image that has /bin/sh."
            }
            Self::Spawn { source, .. } if source.raw_os_error() == Some(libc::ENOEXEC) => {
                " It is built for another processor. Use an image for this machine."
            }
            _ => "",
        }
    }
}
