//! The states of an agent, under V0's names.

use std::borrow::Cow;

use serde::de::IntoDeserializer as _;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

/// The state of a conversation's agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AgentState {
    /// The conversation and its sandbox are being set up.
    #[default]
    Loading,
    /// Ready, without a first message (V0 before 2025).
    Init,
    /// Executing steps.
    Running,
    /// Waiting for the user's next message.
    AwaitingUserInput,
    /// Paused by the user until resumed.
    Paused,
    /// Stopped by the user.
    Stopped,
    /// The agent reported the task as done.
    Finished,
    /// The agent refused the task.
    Rejected,
    /// The run failed; the event holds the reason.
    Error,
    /// An action waits for the user's confirmation.
    AwaitingUserConfirmation,
    /// The user confirmed the pending action.
    UserConfirmed,
    /// The user rejected the pending action.
    UserRejected,
    /// Waiting because the model's provider limits the rate of requests.
    RateLimited,
    /// A state unknown to this version. Occurs only in events that are read, where V0 accepts any
    /// name.
    #[serde(skip_deserializing)]
    Unknown,
}

impl AgentState {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Init => "init",
            Self::Running => "running",
            Self::AwaitingUserInput => "awaiting_user_input",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Rejected => "rejected",
            Self::Error => "error",
            Self::AwaitingUserConfirmation => "awaiting_user_confirmation",
            Self::UserConfirmed => "user_confirmed",
            Self::UserRejected => "user_rejected",
            Self::RateLimited => "rate_limited",
            Self::Unknown => "unknown",
        }
    }

    /// Whether an agent in this state works, provided that its process still runs.
    pub fn is_working(self) -> bool {
        match self {
            Self::Loading
            | Self::Init
            | Self::Running
            | Self::UserConfirmed
            | Self::UserRejected
            | Self::RateLimited => true,
            Self::AwaitingUserInput
            | Self::Paused
            | Self::Stopped
            | Self::Finished
            | Self::Rejected
            | Self::Error
            | Self::AwaitingUserConfirmation
            | Self::Unknown => false,
        }
    }

    /// Returns the state with this name on the wire. [`Self::Unknown`] if no state has it.
    pub fn from_name(name: &str) -> Self {
        let name = name.into_deserializer();
        Self::deserialize::<StrDeserializer<'_, serde::de::value::Error>>(name)
            .unwrap_or(Self::Unknown)
    }

    /// For `deserialize_with` in events: an unknown name becomes [`Self::Unknown`].
    pub(crate) fn or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_name(&Cow::<'de, str>::deserialize(
            deserializer,
        )?))
    }
}

impl std::fmt::Display for AgentState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
