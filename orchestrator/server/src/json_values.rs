//! Rejects JSON with too many values before it is parsed: see [`protocol::untrusted_json`].

use protocol::untrusted_json::has_at_most;
pub(crate) use protocol::untrusted_json::{MAX_VALUES, ValueCounter};

use crate::error::ApiError;

/// Rejects a text with more values than the maximum. `field` is its name in errors.
///
/// # Errors
/// [`ApiError::Invalid`].
pub(crate) fn check_count(field: &str, json: &[u8], max: usize) -> Result<(), ApiError> {
    if has_at_most(json, max) {
        Ok(())
    } else {
        Err(ApiError::invalid(
            field,
            format_args!("must have at most {max} values"),
        ))
    }
}
