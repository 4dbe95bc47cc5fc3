//! What is set for everything that a server starts: the body of `PUT /v1/environment`, an object of names to values.
//!
//! It takes the place of what was set before, and goes over what the server itself was started with. What runs already
//! keeps what it has. No route shows it.

/// The longest environment, names and values together, in bytes.
pub const MAX_ENVIRONMENT_BYTES: usize = 1 << 20;

/// What the kernel lets one name and its value be together, in bytes (MAX_ARG_STRLEN without `=` and the final zero).
pub const MAX_VARIABLE_BYTES: usize = (128 << 10) - 2;
