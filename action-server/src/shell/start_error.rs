//! Why a command could not be given to a shell. None of these ran anything, so each may be tried again.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::libc;
use protocol::Observation;

/// The command was not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    /// No terminal, no such program, or no process to be had.
    #[error("starting the shell {}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    /// It is there, but says nothing.
    #[error("waiting for the shell's prompt for {} seconds", .0.as_secs())]
    NoPrompt(Duration),
    /// It ended before its first prompt.
    #[error("the shell ended with exit code {status} before its first prompt")]
    Ended { status: i32 },
    /// The terminal is gone.
    #[error("sending the command to the shell")]
    Command(#[source] io::Error),
    /// The folder of a static command.
    #[error("{} is not a folder to run a command in", .0.display())]
    NoFolder(PathBuf),
    /// The server is going down.
    #[error("the shell was shut down")]
    Stopped,
}

impl StartError {
    /// What the client is told. An observation, not an HTTP error: the agent can do something about most of them.
    pub(super) fn into_observation(self) -> Observation {
        let id = match &self {
            Self::Stopped => "shell_stopped",
            Self::NoFolder(_) => "no_such_folder",
            Self::Spawn { .. } | Self::NoPrompt(_) | Self::Ended { .. } | Self::Command(_) => "shell_start",
        };
        let advice = self.advice();
        let text = format!("ERROR: {:#}.{advice}", anyhow::Error::new(self));
        Observation::error(text, id)
    }

    /// What to do about the two faults of an image that nothing in it can repair.
    fn advice(&self) -> &'static str {
        match self {
            Self::Spawn { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                " This machine has no shell: take an image that has /bin/sh."
            }
            Self::Spawn { source, .. } if source.raw_os_error() == Some(libc::ENOEXEC) => {
                " It is for another kind of processor: take an image for this one."
            }
            _ => "",
        }
    }
}
