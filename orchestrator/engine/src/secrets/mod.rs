//! Secrets: what must be seen by commands that name it, and by nobody else.
//!
//! The values are taken out wherever text enters or leaves the engine: [`GuardedProvider`] stands before the sandboxes,
//! [`GuardedToolServers`] before the tool servers, [`GuardedStore`] before the log. What prints asks the [`Redactor`]
//! itself. The only way in is the environment of a command: [`GuardedProvider`] gives it what the [`SecretRegistry`] finds named.

mod finder;
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

pub use guarded_provider::GuardedProvider;
pub use guarded_store::GuardedStore;
pub use guarded_tool_servers::GuardedToolServers;
pub use placeholders::Placeholders;
pub use redactor::{REDACTED, Redactor};
pub use registry::{Secret, SecretRegistry};
pub use stream::StreamRedactor;

use secrecy::{ExposeSecret as _, SecretString};
use spellings::Spellings;

/// What is shorter is a word that stands in any text.
const SHORTEST: usize = 6;

/// The longest value, in bytes: a long key is a hundredth of this.
const LONGEST: usize = 64 << 10;

/// The most secrets of one conversation: all spellings of all are looked for in everything.
const MOST: usize = 256;

/// Why a secret cannot be kept. Never says its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// A value is too short to be told from other text.
    #[error(
        "the secret {name} has fewer than {SHORTEST} bytes: it could not be told from other text; use a longer one"
    )]
    TooShort {
        /// Its name.
        name: String,
    },
    /// A value is too long to be looked for.
    #[error("the secret {name} has more than {LONGEST} bytes: keep it in a file of the sandbox instead")]
    TooLong {
        /// Its name.
        name: String,
    },
    /// There are too many.
    #[error("there are more than {MOST} secrets")]
    TooMany,
    /// All of them together are too much to be looked for.
    #[error("the secrets are too long together")]
    TooLarge,
}

impl Redactor {
    /// Looks for these values, each with the name that an error calls it by.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a SecretString)>,
    ) -> Result<Self, SecretError> {
        let mut spellings = Spellings::default();
        for (count, (name, value)) in secrets.into_iter().enumerate() {
            let name = || name.to_owned();
            match value.expose_secret() {
                _ if count == MOST => return Err(SecretError::TooMany),
                value if value.len() < SHORTEST => return Err(SecretError::TooShort { name: name() }),
                value if value.len() > LONGEST => return Err(SecretError::TooLong { name: name() }),
                value => spellings.add(value),
            }
        }
        Self::of_spellings(spellings).ok_or(SecretError::TooLarge)
    }
}
