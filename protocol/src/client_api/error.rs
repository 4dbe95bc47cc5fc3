//! Errors of the API.

use serde::Serialize;
use serde_json::Value;

/// The body of a response with an error status. Routes of V0 have the text under different keys;
/// this body has all of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The problems of a request that cannot be parsed, else the text.
    detail: ErrorDetail,
}

/// What V0's framework has in each error.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ErrorDetail {
    /// What is wrong, for people.
    Text(String),
    /// The problems of a request that cannot be parsed.
    Problems(Vec<RequestProblem>),
}

/// Why a part of a request cannot be parsed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestProblem {
    /// Always `value_error`.
    r#type: &'static str,
    /// `body` or `query`, then the names and indices that lead to the value.
    loc: Vec<Value>,
    /// What is wrong, for people.
    msg: String,
}

impl ErrorBody {
    /// Creates the body of an error.
    pub fn new(msg_id: &'static str, message: String, field: Option<String>) -> Self {
        let (error, detail) = (message.clone(), ErrorDetail::Text(message.clone()));
        Self {
            status: "error",
            error,
            message,
            msg_id,
            field,
            detail,
        }
    }

    /// Adds the location of a value that cannot be parsed.
    #[must_use]
    pub fn with_location(self, loc: Vec<Value>) -> Self {
        let problem = RequestProblem {
            r#type: "value_error",
            loc,
            msg: self.message.clone(),
        };
        Self {
            detail: ErrorDetail::Problems(vec![problem]),
            ..self
        }
    }

    /// Sets the text of V0, for clients that look for it.
    #[must_use]
    pub fn with_v0_error(self, error: &str) -> Self {
        Self {
            error: error.to_owned(),
            ..self
        }
    }
}
