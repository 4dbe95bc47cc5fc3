//! The secrets of a conversation by name, for injection into commands and for the agent's prompt.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::sandbox_api::{ActionRequest, SandboxAction};
use secrecy::{ExposeSecret as _, SecretString};

use super::Placeholders;

/// A secret.
#[derive(Debug, Clone)]
pub struct Secret {
    /// The value.
    pub value: SecretString,
    /// Its purpose, for the agent's prompt; may be empty.
    pub description: String,
}

/// The secrets of a conversation. Cheap to clone. `Debug` omits the values.
#[derive(Debug, Clone, Default)]
pub struct SecretRegistry(Arc<BTreeMap<String, Secret>>);

impl SecretRegistry {
    /// Creates a registry. The names must be valid names of environment variables.
    pub fn new(secrets: BTreeMap<String, Secret>) -> Self {
        Self(Arc::new(secrets))
    }

    /// Returns the placeholders of these secrets.
    pub fn placeholders(&self) -> Placeholders {
        Placeholders::new(
            self.0
                .iter()
                .map(|(name, secret)| (name.as_str(), &secret.value)),
        )
    }

    /// Returns the descriptions by name, for the agent's prompt.
    pub fn descriptions(&self) -> BTreeMap<String, String> {
        self.0
            .iter()
            .map(|(name, secret)| (name.clone(), secret.description.clone()))
            .collect()
    }

    /// Returns the values of the secrets whose names occur in `text` as whole words.
    pub fn named_in(&self, text: &str) -> BTreeMap<String, String> {
        let is_name_character =
            |character: char| character.is_ascii_alphanumeric() || character == '_';
        let words = text.split(|character| !is_name_character(character));
        let named = words.filter_map(|word| self.0.get_key_value(word));
        named
            .map(|(name, secret)| (name.clone(), secret.value.expose_secret().to_owned()))
            .collect()
    }

    /// Returns a copy of the request with the secrets that its command or cell names in the
    /// environment. `None` if it names none, or is input for a running command.
    pub(super) fn inject_secrets(&self, request: &ActionRequest) -> Option<ActionRequest> {
        let text = match &request.action {
            SandboxAction::Run(run) if !run.is_input => &run.command,
            SandboxAction::RunIpython(cell) => &cell.code,
            _ => return None,
        };
        let named = self.named_in(text);
        if named.is_empty() {
            return None;
        }
        let mut request = request.clone();
        request.environment.0.extend(named);
        Some(request)
    }
}
