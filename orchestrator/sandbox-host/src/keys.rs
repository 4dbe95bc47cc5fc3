//! The keys of a sandbox host. Each has a name and a secret, of which only an HMAC is kept.

use std::fmt;
use std::str::FromStr;

use ring::hmac;
use ring::rand::SystemRandom;

/// The names are parts of the names of sandboxes.
const MAX_NAME_LENGTH: usize = 32;
/// Shorter secrets can be guessed.
const MIN_SECRET_LENGTH: usize = 16;
const MAX_SECRET_LENGTH: usize = 512;

/// The keys of a sandbox host.
pub struct HostKeys {
    /// Random. Secrets are compared by their HMACs, so that the time of a comparison reveals
    /// nothing.
    hasher: hmac::Key,
    keys: Vec<(KeyName, hmac::Tag)>,
}

/// The name of a key: letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct KeyName(String);

/// Why keys cannot be used. Contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostKeysError {
    /// There are no keys.
    #[error("there is no key: write one per line, NAME:SECRET")]
    None,
    /// A key is malformed.
    #[error("key {number} {problem}: write NAME:SECRET")]
    Malformed {
        /// The number of the key, from 1.
        number: usize,
        /// The reason.
        problem: &'static str,
    },
    /// The system has no random bytes.
    #[error("the system has no random bytes")]
    NoRandomness,
}

impl HostKeys {
    /// Returns the name of the key with this secret.
    pub(super) fn authenticate(&self, secret: &[u8]) -> Option<&KeyName> {
        let given = hmac::sign(&self.hasher, secret);
        let known = self
            .keys
            .iter()
            .find(|(_, tag)| tag.as_ref() == given.as_ref());
        known.map(|(name, _)| name)
    }
}

impl FromStr for HostKeys {
    type Err = HostKeysError;

    /// Parses `NAME:SECRET`, one per line or separated by commas. Ignores empty lines and those
    /// that start with `#`.
    fn from_str(text: &str) -> Result<Self, HostKeysError> {
        let hasher = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let hasher = hasher.map_err(|_| HostKeysError::NoRandomness)?;
        let mut keys: Vec<(KeyName, hmac::Tag)> = Vec::new();
        let lines = text.split(['\n', ',']).map(str::trim);
        for (index, line) in lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .enumerate()
        {
            let malformed = |problem| HostKeysError::Malformed {
                number: index + 1,
                problem,
            };
            let (name, secret) = line
                .split_once(':')
                .ok_or_else(|| malformed("has no colon"))?;
            let name = KeyName::parse(name).ok_or_else(|| {
                malformed("has a name that is not 1 to 32 letters, digits, - and _")
            })?;
            if !(MIN_SECRET_LENGTH..=MAX_SECRET_LENGTH).contains(&secret.len()) {
                return Err(malformed(
                    "has a secret of less than 16 or more than 512 characters",
                ));
            }
            if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(malformed("has a secret that cannot be sent in a header"));
            }
            let tag = hmac::sign(&hasher, secret.as_bytes());
            if keys.iter().any(|(other, _)| *other == name) {
                return Err(malformed("has the name of another"));
            }
            if keys.iter().any(|(_, other)| other.as_ref() == tag.as_ref()) {
                return Err(malformed("has the secret of another"));
            }
            keys.push((name, tag));
        }
        if keys.is_empty() {
            Err(HostKeysError::None)
        } else {
            Ok(Self { hasher, keys })
        }
    }
}

/// Prints only the names.
impl fmt::Debug for HostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.keys.iter().map(|(name, _)| name))
            .finish()
    }
}

impl KeyName {
    /// Returns `None` if the text is not a valid name.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=MAX_NAME_LENGTH).contains(&text.len()) && text.bytes().all(is_plain);
        is_name.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{HostKeys, HostKeysError};

    #[test]
    fn key_is_found_only_by_its_exact_secret() {
        let keys: HostKeys =
            "# ours\n\nann:0123456789abcdef\r\nbob:0123456789abcdeF:x,eve:0123456789abcde-"
                .parse()
                .unwrap();
        let name = |secret: &str| {
            keys.authenticate(secret.as_bytes())
                .map(|name| name.as_str().to_owned())
        };
        assert_eq!(name("0123456789abcdef").as_deref(), Some("ann"));
        assert_eq!(name("0123456789abcdeF:x").as_deref(), Some("bob"));
        assert_eq!(name("0123456789abcde-").as_deref(), Some("eve"));
        for wrong in [
            "",
            "0123456789abcde",
            "0123456789abcdeg",
            "ann:0123456789abcdef",
        ] {
            assert_eq!(name(wrong), None);
        }
        assert!(!format!("{keys:?}").contains("0123"));
    }

    #[test]
    fn malformed_keys_are_rejected_without_printing_a_secret() {
        assert_eq!(
            "# none\n".parse::<HostKeys>().unwrap_err(),
            HostKeysError::None
        );
        for wrong in [
            "0123456789abcdef",
            "a.b:0123456789abcdef",
            ":0123456789abcdef",
            "a:0123456789abcde",
            "a:0123456789 abcdef",
            "a:0123456789abcdef\na:0123456789abcdeg",
            "a:0123456789abcdef\nb:0123456789abcdef",
        ] {
            let error = wrong.parse::<HostKeys>().unwrap_err();
            assert!(matches!(error, HostKeysError::Malformed { .. }), "{wrong}");
            assert!(!error.to_string().contains("0123456789"), "{error}");
        }
    }
}
