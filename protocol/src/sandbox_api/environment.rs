//! Variables for what is run: for everything that a server starts, or for one command.
//!
//! The former is the body of `PUT /v1/environment`, an object of names to values. It takes the place of what was set
//! before, and goes over what the server itself was started with. What runs already keeps what it has. No route shows it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The longest environment, names and values together, in bytes.
pub const MAX_ENVIRONMENT_BYTES: usize = 1 << 20;

/// What the kernel lets one name and its value be together, in bytes (MAX_ARG_STRLEN without `=` and the final zero).
pub const MAX_VARIABLE_BYTES: usize = (128 << 10) - 2;

/// Variables of one command alone: names to values, bounded as above; a name is one that a shell takes (letters, digits
/// and `_`, no digit first). Does not print its values, which are secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct CommandEnvironment(pub BTreeMap<String, String>);

impl CommandEnvironment {
    /// An object of names to texts; nothing for what is none. Unlike serde's, the error that comes of it quotes no value.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let variable = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        value.as_object()?.iter().map(variable).collect::<Option<_>>().map(Self)
    }
}

impl fmt::Debug for CommandEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
