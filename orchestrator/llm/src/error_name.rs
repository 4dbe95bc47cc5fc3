//! The names of [`LlmErrorKind`] in files.

use engine::llm::LlmErrorKind;
use serde::{Deserialize, Serialize};

/// Serializes the kind as a name, with `#[serde(with = "ErrorName")]`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", remote = "LlmErrorKind")]
pub(crate) enum ErrorName {
    Authentication,
    MissingKey,
    Permission,
    UnknownModel,
    WrongAddress,
    RateLimited,
    ContextWindowExceeded,
    ContentPolicy,
    OutOfCredit,
    Unavailable,
    BadRequest,
    Malformed,
    StreamCut,
    Timeout,
    Connection,
    AddressRefused,
    ScriptEnded,
    NotRecorded,
}
