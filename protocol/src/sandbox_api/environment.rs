//! Environment variables for everything that a server starts, or for a single command.
//!
//! The former is the body of `PUT /v1/environment`, an object of names to values. It replaces the
//! variables of an earlier request and overrides the server's own environment. Running processes
//! keep their environment. No route returns it.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Maximum total length of all names and values, in bytes.
pub const MAX_ENVIRONMENT_BYTES: usize = 1 << 20;

/// Maximum length of a name and its value, in bytes: the kernel's MAX_ARG_STRLEN without `=` and
/// the final zero.
pub const MAX_VARIABLE_BYTES: usize = (128 << 10) - 2;

/// Environment variables of a single command, by name. The limits above apply. A name consists of
/// letters, digits and `_`, and does not start with a digit. `Debug` omits the values, which are
/// secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct CommandEnvironment(pub BTreeMap<String, String>);

impl CommandEnvironment {
    /// Reads an object of names to strings; `None` for any other JSON. Unlike an error of serde,
    /// that quotes no value.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let variable =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        value
            .as_object()?
            .iter()
            .map(variable)
            .collect::<Option<_>>()
            .map(Self)
    }
}

impl fmt::Debug for CommandEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
