//! Variables for what is run: for everything that a server starts, or for one command.
//!
//! The former is the body of `PUT /v1/environment`, an object of names to values. It takes the place of what was set
//! before, and goes over what the server itself was started with. What runs already keeps what it has. No route shows it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest environment, names and values together, in bytes.
pub const MAX_ENVIRONMENT_BYTES: usize = 1 << 20;

/// What the kernel lets one name and its value be together, in bytes (MAX_ARG_STRLEN without `=` and the final zero).
pub const MAX_VARIABLE_BYTES: usize = (128 << 10) - 2;

/// Variables of one command alone: names to values, bounded as above; a name is one that a shell takes (letters, digits
/// and `_`, no digit first). Does not print its values, which are secrets.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandEnvironment(pub BTreeMap<String, String>);

impl fmt::Debug for CommandEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
