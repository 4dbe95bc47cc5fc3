//! Redacts keys in the texts of providers and libraries.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// Maximum length of the detail of an error, in characters.
const MAX_DETAIL_CHARS: usize = 500;

/// Minimum length of a secret, in bytes. Shorter values are words such as `true`.
const MIN_SECRET_LENGTH: usize = 8;

/// The key and the values of configured headers.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<SecretString>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    pub(crate) fn add(&mut self, secret: &SecretString) {
        if secret.expose_secret().len() >= MIN_SECRET_LENGTH {
            self.0.push(secret.clone());
        }
    }

    /// Replaces the secrets in a text.
    pub(crate) fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| {
            text.replace(secret.expose_secret(), "[redacted]")
        })
    }

    /// Formats a text as the detail of an error: in one line, redacted, and then truncated, so that
    /// no part of a key remains.
    pub(crate) fn detail(&self, text: &str) -> String {
        truncate(self.redact(text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}

fn truncate(text: String) -> String {
    match text.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_before_a_text_is_truncated() {
        let mut secrets = Secrets::default();
        secrets.add(&"sk-1234567890".into());
        secrets.add(&"true".into());
        let text = format!(
            "{} sk-1234567890 is\nnot true",
            "x".repeat(MAX_DETAIL_CHARS - 8)
        );
        let detail = secrets.detail(&text);
        assert_eq!(
            detail,
            format!("{} [redact…", "x".repeat(MAX_DETAIL_CHARS - 8))
        );
        assert_eq!(
            secrets.detail("sk-1234567890 is\nnot true"),
            "[redacted] is not true"
        );
    }
}
