//! Ids: one type for each thing that has one, so that they cannot be mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest id that is accepted from outside, in bytes.
pub const MAX_ID_LENGTH: usize = 128;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty, or longer than [`MAX_ID_LENGTH`].
    #[error("an id has 1 to {MAX_ID_LENGTH} characters, not {0}")]
    Length(usize),
    /// Holds something else than letters, digits, `-`, `_` and `.`, or begins with a dot.
    #[error("an id holds letters, digits, `-`, `_` and `.`, not {0:?}")]
    Character(char),
}

/// The place of an event in its conversation's log, from 0, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub u64);

impl EventId {
    /// The id of a log's first event.
    pub const FIRST: Self = Self(0);

    /// The id before this one; none before the first.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// The id after this one.
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
            /// The id as text: letters, digits, `-`, `_` and `.`; safe as a file name and in a URL.
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
    /// A conversation: one event log.
    ConversationId
);
text_id!(
    /// An action as a sandbox knows it. The same id never runs twice.
    ActionId
);
text_id!(
    /// A process as a sandbox knows it, chosen by the host. The same id is never started twice.
    ProcessId
);
text_id!(
    /// One life of an action server. Another boot id under the same address: everything that ran is gone.
    BootId
);
text_id!(
    /// A sandbox as its provider knows it.
    SandboxId
);

text_id!(
    /// A shell of an action server.
    SessionName
);

impl Default for SessionName {
    /// The one that is meant where none is named.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl ActionId {
    /// The sandbox's id for the action that the log holds as `event`. Derived, so that a host that starts again
    /// after a crash asks for the same one.
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
    match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c))) {
        Some(other) => Err(IdError::Character(other)),
        None => Ok(()),
    }
}
