//! Errors of SSH connections and of the scripts that run over them.

use std::time::Duration;

use engine::sandbox::SandboxError;
use sandbox_client::provisioning::start_error;

use super::RUNTIME;
use super::known_hosts::UnknownKey;

/// Error of an SSH operation. `Clone`, since all callers that wait for the same connection receive
/// it.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum SshError {
    /// The connection cannot be opened, or it broke. Worth a retry.
    #[error("{destination}: {reason}")]
    Unreachable { destination: String, reason: String },
    /// The server ended the connection before the login. Worth a retry soon.
    #[error(
        "{destination} ended the connection before the login, as sshd does when many log in at once (MaxStartups)"
    )]
    Dropped { destination: String },
    /// A command did not end, although the connection is fine.
    #[error(
        "{destination}: a command took longer than {seconds} s; the start-up files of the account there may hang, \
         or the connection: try `ssh ssh://{destination} true`"
    )]
    CommandTimedOut { destination: String, seconds: u64 },
    /// A retry cannot succeed until the user changes keys, configuration or the remote host.
    #[error("{0}")]
    Permanent(String),
    /// The host's key is unknown, and the user can be asked to confirm it.
    #[error("the host key of {} is not known", .0.host)]
    UnknownKey(Box<UnknownKey>),
    /// The server does not open a channel of this type.
    #[error("{destination} refuses to open {what}")]
    ChannelRefused {
        destination: String,
        what: &'static str,
    },
}

impl SshError {
    pub(super) fn unreachable(destination: &str, reason: impl std::fmt::Display) -> Self {
        Self::Unreachable {
            destination: destination.to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(super) fn timed_out(destination: &str, operation: &str, limit: Duration) -> Self {
        Self::unreachable(
            destination,
            format_args!("{operation} took longer than {} s", limit.as_secs()),
        )
    }
}

impl From<SshError> for SandboxError {
    fn from(error: SshError) -> Self {
        match error {
            SshError::Unreachable { .. } => Self::RuntimeUnavailable {
                runtime: RUNTIME,
                detail: format!(
                    "{error}; is the host up, and does its name, port and network fit?"
                ),
            },
            SshError::Dropped { .. } | SshError::CommandTimedOut { .. } => {
                Self::RuntimeUnavailable {
                    runtime: RUNTIME,
                    detail: error.to_string(),
                }
            }
            permanent => start_error(permanent.to_string()),
        }
    }
}
