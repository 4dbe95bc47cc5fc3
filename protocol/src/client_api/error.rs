//! Errors of the API.

use serde::Serialize;

/// The body of a response with an error status. Routes of V0 have the text under different keys; this body has all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// Always `error`.
    status: &'static str,
    /// What is wrong, for people.
    pub message: String,
    /// The same text, unless V0's clients look for its own.
    error: String,
    /// A stable code.
    pub msg_id: &'static str,
    /// The field of the request that is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl ErrorBody {
    /// Creates the body of an error.
    pub fn new(msg_id: &'static str, message: String, field: Option<String>) -> Self {
        Self { status: "error", error: message.clone(), message, msg_id, field }
    }

    /// Sets the text of V0, for clients that look for it.
    #[must_use]
    pub fn with_v0_error(self, error: &str) -> Self {
        Self { error: error.to_owned(), ..self }
    }
}
