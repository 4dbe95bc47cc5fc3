//! Errors of calls to git providers.

use std::time::Duration;

use jiff::Timestamp;
use protocol::client_api::git::GitProvider;

use crate::address_policy::RefusedAddress;

/// The error of a call.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The user has stored no token for this provider. A retry fails until there is one.
    #[error("no token for {0}: add one in the settings")]
    NoToken(GitProvider),
    /// The user has stored no token at all. A retry fails until there is one.
    #[error("no token for any git provider: add one in the settings")]
    NoTokens,
    /// The provider does not have this operation. A retry fails again.
    #[error("cannot {operation} on {provider}: it does not support that")]
    Unsupported {
        /// The operation, as a verb with an object.
        operation: &'static str,
        /// The provider.
        provider: GitProvider,
    },
    /// The call failed.
    #[error("cannot {operation} on {provider}")]
    Request {
        /// The operation, as a verb with an object.
        operation: &'static str,
        /// The provider.
        provider: GitProvider,
        /// The cause, which says whether a retry can succeed.
        source: RequestError,
    },
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// An argument or a setting is unusable. Nothing was sent. A retry fails again.
    #[error("the {field} is unusable: {problem}")]
    InvalidInput {
        /// The argument, or the part of the token.
        field: &'static str,
        /// What is expected.
        problem: &'static str,
    },
    /// The provider does not accept the token, or the token lacks a permission. A retry fails until
    /// it is replaced.
    #[error("the token was rejected with status {status}{}", Detail(detail))]
    TokenRejected {
        /// The status of the response: 401 or 403; also 203 from Azure DevOps.
        status: u16,
        /// The provider's message, redacted and truncated; may be empty.
        detail: String,
    },
    /// The token's rate limit is exceeded.
    #[error("the rate limit is exceeded{}", RetryAt(*retry_at))]
    RateLimited {
        /// When a retry can succeed. `None` if the provider does not report it.
        retry_at: Option<Timestamp>,
    },
    /// No connection, or it broke. A retry can succeed.
    #[error("the provider is unreachable")]
    Unreachable {
        /// The cause, without the URL.
        source: reqwest::Error,
    },
    /// The provider's address is not allowed. A retry fails again.
    #[error("the provider's address is refused")]
    AddressRefused {
        /// The cause.
        #[from]
        source: RefusedAddress,
    },
    /// The response took too long. A retry can succeed.
    #[error("no complete response within {limit:?}")]
    TimedOut {
        /// The time limit that was exceeded.
        limit: Duration,
    },
    /// No such repository, branch or file, or the token cannot see it. A retry fails again.
    #[error("not found, or not visible to the token")]
    NotFound,
    /// The response refers to another origin, which the token is not sent to. A retry fails again.
    #[error("the response refers to another host")]
    OtherOrigin,
    /// The response is too long. A retry fails again.
    #[error("the response is longer than {limit} bytes")]
    TooLarge {
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// The response is not what the provider documents. A retry fails again.
    #[error("the response is malformed")]
    Malformed {
        /// The cause, with the name of the field.
        source: serde_path_to_error::Error<serde_json::Error>,
    },
    /// The provider responded with another error. A retry can succeed from status 500 on.
    #[error("the provider responded with status {status}{}", Detail(detail))]
    Status {
        /// The status of the response.
        status: u16,
        /// The provider's message, redacted and truncated; may be empty.
        detail: String,
    },
}

impl RequestError {
    /// Whether an immediate retry can succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Status { status: 500.., .. }
        )
    }
}

/// Formats a detail that may be empty.
struct Detail<'a>(&'a str);

impl std::fmt::Display for Detail<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.0)
        }
    }
}

/// Formats a time that may be unknown.
struct RetryAt(Option<Timestamp>);

impl std::fmt::Display for RetryAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(time) => write!(f, ": retry after {time:.0}"),
            None => Ok(()),
        }
    }
}
