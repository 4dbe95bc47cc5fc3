//! Errors of operations on users and keys.

use protocol::UserId;

use crate::store::StoreFailure;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No user has this name.
    #[error("there is no user {0}")]
    UnknownUser(UserId),
    /// A user has this name already.
    #[error("the user {0} exists already")]
    UserExists(UserId),
    /// A removed user had this name, and still owns conversations under it.
    #[error(
        "the user {0} was removed, and the name is not given to another one: restore the user, or choose another name"
    )]
    UserRemoved(UserId),
    /// The name cannot be that of a new user.
    #[error(
        "{0:?} cannot be the name of a user: it has 1 to 63 lower-case letters, digits, `-`, `_` and `.`, the first a letter, and is neither \
         `operator` nor `unknown`"
    )]
    InvalidName(String),
    /// No key has this id.
    #[error("there is no key {0}")]
    UnknownKey(String),
    /// The user has as many keys as a user may have.
    #[error("the user {user} has {max} keys, which is the maximum: revoke one")]
    TooManyKeys {
        /// The user.
        user: UserId,
        /// The maximum.
        max: usize,
    },
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes")]
    NoRandomBytes,
    /// The store failed. A retry may succeed.
    #[error(transparent)]
    Store(#[from] StoreFailure),
}

impl AccountError {
    /// Whether a retry of the same request fails again.
    pub fn is_bad_request(&self) -> bool {
        !matches!(self, Self::NoRandomBytes | Self::Store(_))
    }
}
