//! Secrets: values that only the commands that name them may see.
//!
//! The values are redacted wherever text enters or leaves the engine: [`GuardedProvider`] wraps the
//! sandboxes, [`GuardedToolServers`] the tool servers, [`GuardedLlm`] the models, whose answers are
//! streamed, [`GuardedStore`] the event store. Code that prints uses the [`Redactor`] directly. A
//! sandbox gets a secret only through the environment of a command: [`GuardedProvider`] injects
//! those that the [`SecretRegistry`] finds in its text.

mod finder;
mod guarded_llm;
mod guarded_provider;
mod guarded_sandbox;
mod guarded_store;
mod guarded_tool_servers;
mod placeholders;
mod redactor;
mod registry;
mod spellings;
mod stream;
#[cfg(test)]
mod tests;
mod unwrapped;

pub use guarded_llm::GuardedLlm;
pub use guarded_provider::GuardedProvider;
pub use guarded_store::GuardedStore;
pub use guarded_tool_servers::GuardedToolServers;
pub use placeholders::Placeholders;
pub use redactor::{REDACTED, Redactor, WeakRedactor};
pub use registry::{Secret, SecretRegistry};
pub use stream::StreamRedactor;

use secrecy::{ExposeSecret as _, SecretString};
use spellings::Spellings;

/// Minimum length of a value, in bytes. A shorter one is a word that occurs in ordinary text.
const MIN_SECRET_BYTES: usize = 6;

/// Maximum length of a value, in bytes: a hundred times a long key.
const MAX_SECRET_BYTES: usize = 64 << 10;

/// Maximum length of all values, in bytes. Their spellings take some hundred times as much.
const MAX_TOTAL_BYTES: usize = 256 << 10;

/// Maximum number of secrets of a conversation, because all text is searched for all their
/// spellings.
const MAX_SECRETS: usize = 256;

/// The error of a secret that cannot be redacted. Never contains its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The value is too short to be distinguished from other text.
    #[error(
        "the secret {name} has fewer than {MIN_SECRET_BYTES} bytes: it cannot be distinguished from other text; use a longer one"
    )]
    TooShort {
        /// Its name.
        name: String,
    },
    /// The value is too long to search for.
    #[error(
        "the secret {name} has more than {MAX_SECRET_BYTES} bytes: keep it in a file of the sandbox instead"
    )]
    TooLong {
        /// Its name.
        name: String,
    },
    /// There are too many secrets.
    #[error("there are more than {MAX_SECRETS} secrets")]
    TooMany,
    /// All secrets together are too long to search for.
    #[error("the secrets are too long together")]
    TooLarge,
}

impl Redactor {
    /// Creates a redactor of these values, with their names for errors.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a SecretString)>,
    ) -> Result<Self, SecretError> {
        let (mut spellings, mut total) = (Spellings::default(), 0);
        for (count, (name, value)) in secrets.into_iter().enumerate() {
            if count == MAX_SECRETS {
                return Err(SecretError::TooMany);
            }
            check_secret(name, value)?;
            total += value.expose_secret().len();
            if total > MAX_TOTAL_BYTES {
                return Err(SecretError::TooLarge);
            }
            spellings.add(value.expose_secret());
        }
        Self::from_spellings(spellings).ok_or(SecretError::TooLarge)
    }
}

/// Checks that a value can be redacted.
///
/// # Errors
/// [`SecretError::TooShort`] or [`SecretError::TooLong`].
pub fn check_secret(name: &str, value: &SecretString) -> Result<(), SecretError> {
    let name = || name.to_owned();
    match value.expose_secret().len() {
        length if length < MIN_SECRET_BYTES => Err(SecretError::TooShort { name: name() }),
        length if length > MAX_SECRET_BYTES => Err(SecretError::TooLong { name: name() }),
        _ => Ok(()),
    }
}
