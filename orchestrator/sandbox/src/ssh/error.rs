//! What goes wrong between here and a shell on the other side.

use std::time::Duration;

use engine::sandbox::SandboxError;

use super::RUNTIME;
use super::known_hosts::UnknownKey;
use crate::placement::start_error;

/// Why something could not be done over SSH. Shared by all who waited for the same connection.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum SshError {
    /// There is no connection, or it broke. May be tried again.
    #[error("{place}: {reason}")]
    Unreachable { place: String, reason: String },
    /// Trying again changes nothing before somebody has changed something: keys, configuration, the other side.
    #[error("{0}")]
    Hopeless(String),
    /// The host's key is not known, and somebody can be asked about it.
    #[error("the host key of {} is not known", .0.host)]
    UnknownKey(Box<UnknownKey>),
    /// The other side does not open such a channel.
    #[error("{place} refuses to open {what}")]
    ChannelRefused { place: String, what: &'static str },
}

impl SshError {
    pub(super) fn unreachable(place: &str, reason: impl std::fmt::Display) -> Self {
        Self::Unreachable { place: place.to_owned(), reason: reason.to_string() }
    }

    /// Nothing came in time.
    pub(super) fn late(place: &str, doing: &str, limit: Duration) -> Self {
        Self::unreachable(place, format_args!("{doing} took longer than {} s", limit.as_secs()))
    }
}

impl From<SshError> for SandboxError {
    fn from(error: SshError) -> Self {
        match error {
            SshError::Unreachable { .. } => Self::RuntimeUnavailable {
                runtime: RUNTIME,
                detail: format!("{error}; is the host up, and does its name, port and network fit?"),
            },
            hopeless => start_error(hopeless.to_string()),
        }
    }
}
