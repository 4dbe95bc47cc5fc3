//! What people call a sandbox: its id without what all of ours begin with. A conversation's sandbox is called as the
//! conversation is.

use std::fmt;
use std::str::FromStr;

use engine::sandbox::SandboxSummary;
use protocol::{ConversationId, IdError, SandboxId};

use crate::exit::UsageError;

const PREFIX: &str = "glovebox-";

/// A sandbox's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(ConversationId);

impl Name {
    /// One that nobody has: the random end of a new id.
    pub(super) fn fresh() -> anyhow::Result<Self> {
        let id = uuid::Uuid::now_v7().simple().to_string();
        Ok(Self(id.chars().skip(id.len() - 8).collect::<String>().try_into()?))
    }

    /// The conversation whose sandbox it is; one that was made by hand has one that never began.
    pub(super) fn conversation(&self) -> &ConversationId {
        &self.0
    }

    /// Its id at the runtime.
    pub(super) fn sandbox(&self) -> anyhow::Result<SandboxId> {
        sandbox::sandbox_id_of(&self.0).map_err(|error| UsageError(error.to_string()).into())
    }

    /// What a sandbox is called that is there.
    pub(super) fn of(placed: &SandboxSummary) -> String {
        let id = placed.sandbox.as_str();
        id.strip_prefix(PREFIX).unwrap_or(id).to_owned()
    }
}

impl FromStr for Name {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        text.strip_prefix(PREFIX).unwrap_or(text).parse().map(Self)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_name_is_taken_with_and_without_its_prefix() {
        let name: Name = "box".parse().unwrap();
        assert_eq!(name, "glovebox-box".parse().unwrap());
        assert_eq!((name.to_string().as_str(), name.sandbox().unwrap().as_str()), ("box", "glovebox-box"));
        assert!("../box".parse::<Name>().is_err());
        assert_ne!(Name::fresh().unwrap(), Name::fresh().unwrap());
    }
}
