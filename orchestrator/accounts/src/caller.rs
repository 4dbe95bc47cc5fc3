//! Who sent a request.

use std::fmt;
use std::str::FromStr;

use protocol::UserId;

use crate::key::{KeyId, KeyScope};
use crate::secret_hash::SecretHash;

/// Who sent a request, and what the key or the session of the request allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user. `None` for the operator.
    pub user: Option<UserId>,
    /// What the caller may do.
    pub scope: KeyScope,
    /// The user's key. `None` for the operator's. A session has the key that it was started with.
    pub key: Option<KeyId>,
    /// What authenticated the caller.
    pub credential: Credential,
}

/// What authenticated a caller, without the secret. Its text is used to find out later whether it
/// is still valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// The operator's key.
    Operator,
    /// A user's key.
    Key(KeyId),
    /// A session.
    Session(SecretHash),
}

/// The text is no [`Credential`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a credential")]
pub struct InvalidCredential;

impl Caller {
    /// Returns the operator, authenticated with the operator's key or a session.
    pub(crate) fn operator(credential: Credential) -> Self {
        Self {
            user: None,
            scope: KeyScope::Write,
            key: None,
            credential,
        }
    }

    /// Whether the caller may see what this owner has. The operator sees everything.
    pub fn may_see(&self, owner: Option<&UserId>) -> bool {
        self.user.is_none() || self.user.as_ref() == owner
    }

    /// Whether the caller may change something.
    pub fn can_write(&self) -> bool {
        self.scope == KeyScope::Write
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => formatter.write_str("operator"),
            Self::Key(id) => write!(formatter, "key-{id}"),
            Self::Session(hash) => write!(formatter, "session-{}", hex::encode(hash.as_bytes())),
        }
    }
}

impl FromStr for Credential {
    type Err = InvalidCredential;

    fn from_str(text: &str) -> Result<Self, InvalidCredential> {
        match text.split_once('-') {
            None if text == "operator" => Ok(Self::Operator),
            Some(("key", id)) => id.parse().map(Self::Key).map_err(|_| InvalidCredential),
            Some(("session", digits)) => {
                let mut bytes = [0; 32];
                hex::decode_to_slice(digits, &mut bytes).map_err(|_| InvalidCredential)?;
                Ok(Self::Session(SecretHash::from_bytes(bytes)))
            }
            _ => Err(InvalidCredential),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_credential_is_parsed_again() {
        let key = "0123456789ab".parse().unwrap();
        for credential in [
            Credential::Operator,
            Credential::Key(key),
            Credential::Session(SecretHash::new(b"token")),
        ] {
            assert_eq!(credential.to_string().parse(), Ok(credential));
        }
        for wrong in ["", "operator-", "key-", "key-x", "session-00", "user-a"] {
            assert_eq!(
                wrong.parse::<Credential>(),
                Err(InvalidCredential),
                "{wrong}"
            );
        }
    }

    #[test]
    fn user_sees_only_own_conversations_and_operator_all() {
        let [ada, ben] = ["ada", "ben"].map(|name| name.parse::<UserId>().unwrap());
        let operator = Caller::operator(Credential::Operator);
        let user = Caller {
            user: Some(ada.clone()),
            ..operator.clone()
        };
        for (owner, expected) in [(Some(&ada), true), (Some(&ben), false), (None, false)] {
            assert_eq!(user.may_see(owner), expected, "{owner:?}");
            assert!(operator.may_see(owner));
        }
    }
}
