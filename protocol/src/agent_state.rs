//! The states of an agent, as V0 names them.

use std::borrow::Cow;

use serde::de::IntoDeserializer as _;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

/// What the agent of a conversation is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    /// The conversation and its sandbox are being made ready.
    #[default]
    Loading,
    /// Ready, and never asked (V0 before 2025).
    Init,
    /// Taking steps.
    Running,
    /// Waiting for the user's answer.
    AwaitingUserInput,
    /// Held by the user; goes on when told.
    Paused,
    /// Ended by the user.
    Stopped,
    /// The agent says the task is done.
    Finished,
    /// The agent refuses the task.
    Rejected,
    /// Something failed; the reason stands in the event.
    Error,
    /// An action waits for the user's confirmation.
    AwaitingUserConfirmation,
    /// The user confirmed the waiting action.
    UserConfirmed,
    /// The user refused the waiting action.
    UserRejected,
    /// The model's provider asks us to wait.
    RateLimited,
    /// A state that this version does not know. Only read in events, where V0 accepts any name.
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

    /// For `deserialize_with`: the state of an event.
    pub(crate) fn or_unknown<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        let name = name.as_ref().into_deserializer();
        Ok(Self::deserialize::<StrDeserializer<'_, serde::de::value::Error>>(name).unwrap_or(Self::Unknown))
    }
}

impl std::fmt::Display for AgentState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
