//! Ids, each kind with a type of its own so that they cannot be confused.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum length of an id, in bytes.
pub const MAX_ID_LENGTH: usize = 128;

/// The error of an invalid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty, or longer than [`MAX_ID_LENGTH`].
    #[error("an id has 1 to {MAX_ID_LENGTH} characters, not {0}")]
    Length(usize),
    /// Holds a character other than letters, digits, `-`, `_` and `.`, or starts with a dot.
    #[error("an id holds letters, digits, `-`, `_` and, except at its start, `.`, not {0:?}")]
    Character(char),
}

/// The index of an event in its conversation's log, from 0, without gaps. The default is that of
/// the first event.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct EventId(pub u64);

impl EventId {
    /// The id of the first event of a log.
    pub const FIRST: Self = Self(0);

    /// Returns the preceding id, or `None` for the first.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// Returns the following id.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        #[cfg_attr(
            feature = "openapi",
            derive(utoipa::ToSchema),
            schema(value_type = String, pattern = "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$")
        )]
        pub struct $name(String);

        impl $name {
            /// Returns the id as text: letters, digits, `-`, `_` and `.`, hence safe as a file name
            /// and in a URL.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                check(&text)?;
                Ok(Self(text))
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text_id!(
    /// Identifies a conversation and its event log.
    ConversationId
);
text_id!(
    /// Identifies an action in a sandbox. The same id never runs twice.
    ActionId
);
text_id!(
    /// Identifies a process in a sandbox; chosen by the host. The same id is never started twice.
    ProcessId
);
text_id!(
    /// Identifies one run of an action server. If it changes under the same address, everything
    /// that ran is lost.
    BootId
);
text_id!(
    /// Identifies a sandbox within its provider.
    SandboxId
);
text_id!(
    /// Identifies a command of a user; chosen by the client. A conversation applies the same id
    /// once.
    CommandId
);
text_id!(
    /// Names a user of a server. The name of a removed user is not given to another one.
    UserId
);

text_id!(
    /// Names a shell session of an action server.
    SessionName
);

impl Default for SessionName {
    /// The session used if none is named.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl ActionId {
    /// Returns the sandbox's id for the action that the log holds as `event`. It is derived, so
    /// that a host that restarts after a crash re-attaches to the same action.
    pub fn for_event(conversation: &ConversationId, event: EventId) -> Self {
        Self(format!("{conversation}.{event}"))
    }
}

fn check(text: &str) -> Result<(), IdError> {
    if text.is_empty() || text.len() > MAX_ID_LENGTH {
        return Err(IdError::Length(text.len()));
    }
    if text.starts_with('.') {
        return Err(IdError::Character('.'));
    }
    match text
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c)))
    {
        Some(other) => Err(IdError::Character(other)),
        None => Ok(()),
    }
}
