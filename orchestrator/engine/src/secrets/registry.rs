//! The secrets by name: what a command that names some is given, and what an agent is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::sandbox_api::{ActionRequest, SandboxAction};
use secrecy::{ExposeSecret as _, SecretString};

use super::Placeholders;

/// One secret.
#[derive(Debug, Clone)]
pub struct Secret {
    /// What nobody may see.
    pub value: SecretString,
    /// What it is for, told to agents; empty: nothing is said of it.
    pub description: String,
}

/// The secrets of a conversation. Cheap to clone. Does not print their values.
#[derive(Debug, Clone, Default)]
pub struct SecretRegistry(Arc<BTreeMap<String, Secret>>);

impl SecretRegistry {
    /// These secrets, by names that a shell takes.
    pub fn new(secrets: BTreeMap<String, Secret>) -> Self {
        Self(Arc::new(secrets))
    }

    /// Placeholders for these secrets.
    pub fn placeholders(&self) -> Placeholders {
        Placeholders::new(self.0.iter().map(|(name, secret)| (name.as_str(), &secret.value)))
    }

    /// What agents are told: names, and what each is for.
    pub fn descriptions(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, secret)| (name.clone(), secret.description.clone())).collect()
    }

    /// The variables for a command: the secrets that its text names, as whole words, with their values.
    pub fn named_in(&self, text: &str) -> BTreeMap<String, String> {
        let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_of_a_name(letter));
        let named = words.filter_map(|word| self.0.get_key_value(word));
        named.map(|(name, secret)| (name.clone(), secret.value.expose_secret().to_owned())).collect()
    }

    /// The same request with the secrets that its command or cell names, as whole words, in its environment; nothing when it names
    /// none. What is typed to a command that runs is no command.
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
