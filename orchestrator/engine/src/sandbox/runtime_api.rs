//! Conversions between sandboxes and the shapes of the runtime API.

use protocol::runtime_api::{RuntimeLifetime, RuntimeStatus};

use super::spec::{Lifetime, UnknownLifetime};
use super::summary::SandboxState;

impl From<SandboxState> for RuntimeStatus {
    fn from(state: SandboxState) -> Self {
        match state {
            SandboxState::Running => Self::Running,
            SandboxState::Paused => Self::Paused,
            SandboxState::Ended => Self::Stopped,
        }
    }
}

impl From<Lifetime> for RuntimeLifetime {
    fn from(lifetime: Lifetime) -> Self {
        match lifetime {
            Lifetime::Conversation => Self::Conversation,
            Lifetime::UntilRemoved => Self::UntilRemoved,
            Lifetime::Until(time) => Self::Until(time.to_string()),
        }
    }
}

impl TryFrom<RuntimeLifetime> for Lifetime {
    type Error = UnknownLifetime;

    fn try_from(lifetime: RuntimeLifetime) -> Result<Self, UnknownLifetime> {
        match lifetime {
            RuntimeLifetime::Conversation => Ok(Self::Conversation),
            RuntimeLifetime::UntilRemoved => Ok(Self::UntilRemoved),
            RuntimeLifetime::Until(time) => time
                .parse()
                .map(Self::Until)
                .map_err(|_| UnknownLifetime(time)),
        }
    }
}
