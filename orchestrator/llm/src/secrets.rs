//! The texts that must never leave: taken out of everything that a provider or a library says.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// The longest text of a provider that goes into an error, in characters.
const DETAIL_CHARS: usize = 500;

/// Shorter values are words like `true`; to take those out would only garble the text.
const SHORTEST_SECRET: usize = 8;

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
        if secret.expose_secret().len() >= SHORTEST_SECRET {
            self.0.push(secret.clone());
        }
    }

    /// The text without the secrets.
    pub(crate) fn redacted(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| text.replace(secret.expose_secret(), "[redacted]"))
    }

    /// The text in one line, without the secrets, shortened last: half a key must not stay at its end.
    pub(crate) fn detail(&self, text: &str) -> String {
        shorten(self.redacted(text.split_whitespace().collect::<Vec<_>>().join(" ")))
    }
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(DETAIL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_before_the_text_is_shortened() {
        let mut secrets = Secrets::default();
        secrets.add(&"sk-1234567890".into());
        secrets.add(&"true".into());
        let text = format!("{} sk-1234567890 is\nnot true", "x".repeat(DETAIL_CHARS - 8));
        let detail = secrets.detail(&text);
        assert_eq!(detail, format!("{} [redact…", "x".repeat(DETAIL_CHARS - 8)));
        assert_eq!(secrets.detail("sk-1234567890 is\nnot true"), "[redacted] is not true");
    }
}
