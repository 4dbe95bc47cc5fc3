//! API keys of users.

use std::fmt;
use std::str::FromStr;

use protocol::UserId;
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};

use crate::error::AccountError;
use crate::secret_hash::SecretHash;

/// Start of each key, by which scanners for leaked secrets find it.
const KEY_PREFIX: &str = "glovebox_";

/// Number of random bytes of a key or token.
const SECRET_BYTES: usize = 32;

/// Number of bytes of the hash that are the id.
const ID_BYTES: usize = 6;

/// What a key allows with the conversations and settings of its user. A later one includes the
/// earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyScope {
    /// Reads, and follows streams. Starts and changes nothing, and reaches no port of a sandbox.
    Read,
    /// Everything that the user may do.
    Write,
}

impl KeyScope {
    /// All scopes.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Returns the scope of this name. `None` if no scope has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}

/// Identifies a key: 12 hexadecimal digits. Not secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

/// The text is no id of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id of a key has 12 hexadecimal digits")]
pub struct InvalidKeyId;

impl KeyId {
    pub(crate) fn new(hash: &SecretHash) -> Self {
        Self(hex::encode(
            hash.as_bytes().get(..ID_BYTES).unwrap_or_default(),
        ))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyId {
    type Err = InvalidKeyId;

    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.len() == ID_BYTES * 2 && text.bytes().all(is_digit) {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidKeyId),
        }
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A key without its secret. Times are in seconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its id.
    pub id: KeyId,
    /// Its user.
    pub user: UserId,
    /// What it allows.
    pub scope: KeyScope,
    /// When it was added.
    pub created_at: u64,
    /// When it expires. `None` for never.
    pub expires_at: Option<u64>,
    /// When it was last used, to the minute. `None` if it was not.
    pub last_used_at: Option<u64>,
}

impl Key {
    /// Whether the key has expired at a time.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// A key that was added. The only time that its secret is known.
pub struct NewKey {
    /// What clients send.
    pub secret: SecretString,
    /// The rest.
    pub key: Key,
}

impl NewKey {
    pub(crate) fn generate(
        user: UserId,
        scope: KeyScope,
        created_at: u64,
        expires_at: Option<u64>,
    ) -> Result<(Self, SecretHash), AccountError> {
        let secret = SecretString::from(format!("{KEY_PREFIX}{}", random_text()?));
        let hash = SecretHash::new(secret.expose_secret().as_bytes());
        let id = KeyId::new(&hash);
        let key = Key {
            id,
            user,
            scope,
            created_at,
            expires_at,
            last_used_at: None,
        };
        Ok((Self { secret, key }, hash))
    }
}

/// Returns a random text of 64 hexadecimal digits.
pub(crate) fn random_text() -> Result<String, AccountError> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| AccountError::NoRandomBytes)?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_and_have_the_id_of_their_hash() {
        let generate =
            || NewKey::generate("ada".parse().unwrap(), KeyScope::Read, 0, Some(2)).unwrap();
        let [(first, hash), (second, _)] = [generate(), generate()];
        assert_ne!(first.secret.expose_secret(), second.secret.expose_secret());
        assert_eq!(first.secret.expose_secret().len(), KEY_PREFIX.len() + 64);
        assert_eq!(first.key.id.as_str().parse(), Ok(first.key.id.clone()));
        assert!(hex::encode(hash.as_bytes()).starts_with(first.key.id.as_str()));
        assert_eq!(
            [0, 1, 2, 3].map(|now| first.key.is_expired(now)),
            [false, false, true, true]
        );
    }

    #[test]
    fn id_of_a_key_is_12_hexadecimal_digits() {
        for wrong in [
            "",
            "0123456789a",
            "0123456789abc",
            "0123456789aB",
            "0123456789ag",
        ] {
            assert_eq!(wrong.parse::<KeyId>(), Err(InvalidKeyId), "{wrong}");
        }
    }
}
