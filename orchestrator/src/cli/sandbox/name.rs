//! The name of a sandbox for users: its id without the common prefix. The name of a conversation's
//! sandbox is the id of the conversation.

use std::fmt;
use std::str::FromStr;

use engine::sandbox::SandboxSummary;
use protocol::{ConversationId, IdError, SandboxId};
use sandbox_client::provisioning::sandbox_id_of;

use crate::exit::UsageError;

const PREFIX: &str = "glovebox-";

/// Name of a new or existing sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SandboxName(ConversationId);

impl SandboxName {
    /// Generates a name: the random end of a new id.
    pub(super) fn generate() -> anyhow::Result<Self> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        Ok(Self(
            id.chars()
                .skip(id.len() - 8)
                .collect::<String>()
                .try_into()?,
        ))
    }

    /// Returns the conversation of the sandbox. For a sandbox without a conversation, an id that no
    /// conversation has.
    pub(super) fn conversation(&self) -> &ConversationId {
        &self.0
    }

    /// Returns the id of the sandbox.
    pub(super) fn sandbox(&self) -> anyhow::Result<SandboxId> {
        sandbox_id_of(&self.0).map_err(|error| UsageError(error.to_string()).into())
    }
}

/// Returns the name of an existing sandbox.
pub(super) fn display_name(summary: &SandboxSummary) -> String {
    let id = summary.sandbox.as_str();
    id.strip_prefix(PREFIX).unwrap_or(id).to_owned()
}

impl FromStr for SandboxName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.strip_prefix(PREFIX).unwrap_or(text).parse().map(Self)
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::SandboxName;

    #[test]
    fn name_is_parsed_with_and_without_its_prefix() {
        let name: SandboxName = "box".parse().unwrap();
        assert_eq!(name, "glovebox-box".parse().unwrap());
        assert_eq!(
            (name.to_string().as_str(), name.sandbox().unwrap().as_str()),
            ("box", "glovebox-box")
        );
        assert!("../box".parse::<SandboxName>().is_err());
        assert_ne!(
            SandboxName::generate().unwrap(),
            SandboxName::generate().unwrap()
        );
    }
}
