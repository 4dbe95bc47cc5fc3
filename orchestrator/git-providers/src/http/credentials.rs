//! The headers that authenticate a request, and the redaction of what they contain.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::RequestError;

/// Maximum length of the detail of an error, in characters.
const MAX_DETAIL_CHARS: usize = 300;

/// A token as a header.
#[derive(Clone)]
pub(crate) struct Credentials {
    headers: HeaderMap,
    /// The token, and its form in the header. Longer ones first, so that no part of one remains.
    secrets: Vec<SecretString>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    pub(crate) fn bearer(token: &SecretString) -> Result<Self, RequestError> {
        Self::new("Bearer", token.clone(), token)
    }

    pub(crate) fn basic(name: &str, password: &str) -> Result<Self, RequestError> {
        let pair = format!("{name}:{password}");
        Self::new("Basic", STANDARD.encode(pair).into(), &password.into())
    }

    fn new(scheme: &str, sent: SecretString, token: &SecretString) -> Result<Self, RequestError> {
        let invalid = |problem| RequestError::InvalidInput {
            field: "token",
            problem,
        };
        if token.expose_secret().trim().is_empty() {
            return Err(invalid("it is empty"));
        }
        let mut value = HeaderValue::from_str(&format!("{scheme} {}", sent.expose_secret()))
            .map_err(|_| invalid("it contains characters that no token has"))?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
        Ok(Self {
            headers,
            secrets: vec![sent, token.clone()],
        })
    }

    /// Adds a header that is sent with every request.
    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    pub(super) fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    /// Formats a provider's text as the detail of an error: in one line, redacted, and then
    /// truncated.
    pub(super) fn detail(&self, text: &str) -> String {
        let visible: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
        let redacted = self.secrets.iter().fold(line, |line, secret| {
            line.replace(secret.expose_secret(), "[redacted]")
        });
        redacted.chars().take(MAX_DETAIL_CHARS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_no_debug_output_and_no_detail() {
        let credentials = Credentials::basic("me", "s3cret-password").unwrap();
        let encoded = STANDARD.encode("me:s3cret-password");
        let debug = format!("{credentials:?} {:?}", credentials.headers);
        assert!(
            !debug.contains("s3cret") && !debug.contains(&encoded),
            "{debug}"
        );
        let detail = credentials.detail(&format!("bad\x1b[1m s3cret-password\nor {encoded}"));
        assert_eq!(detail, "bad [1m [redacted] or [redacted]");
    }

    #[test]
    fn secret_is_redacted_before_the_detail_is_truncated() {
        let credentials = Credentials::bearer(&"ghp_1234567890".into()).unwrap();
        let detail = credentials.detail(&format!(
            "{} ghp_1234567890",
            "x".repeat(MAX_DETAIL_CHARS - 5)
        ));
        assert_eq!(detail, format!("{} [red", "x".repeat(MAX_DETAIL_CHARS - 5)));
    }

    #[test]
    fn token_is_unusable_when_empty_or_not_a_header() {
        for token in ["", " \n", "ghp_1\nx: y", "ghp_\0"] {
            let error = Credentials::bearer(&token.into()).unwrap_err();
            assert!(
                matches!(error, RequestError::InvalidInput { field: "token", .. }),
                "{error}"
            );
        }
    }
}
