//! Errors of requests.

use conversations::{ServiceError, ServiceErrorKind};
use http::StatusCode;
use serde::Deserialize;

/// Maximum length of a message that is shown, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The address is not one of a server.
    #[error("`{0}` is not the address of a server: it is like https://host:3000")]
    Url(String),
    /// The address has a user, a password or a query.
    #[error(
        "the address of a server has no user, no password and no query: the key is passed separately"
    )]
    Credentials,
    /// The key has characters that a header cannot have.
    #[error(
        "the key is not valid: it has spaces, line ends or other characters that cannot be sent"
    )]
    Key,
    /// TLS cannot be used.
    #[error("cannot configure TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The part of an error's body that clients show.
#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

/// Returns the error of a response.
pub(crate) fn response_error(status: StatusCode, body: &[u8]) -> ServiceError {
    let kind = match status {
        StatusCode::NOT_FOUND => ServiceErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ServiceErrorKind::Denied,
        StatusCode::CONFLICT => ServiceErrorKind::Conflict,
        StatusCode::PAYLOAD_TOO_LARGE => ServiceErrorKind::TooLarge,
        StatusCode::TOO_MANY_REQUESTS => ServiceErrorKind::Busy,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            ServiceErrorKind::Unavailable
        }
        status if status.is_client_error() => ServiceErrorKind::Invalid,
        _ => ServiceErrorKind::Failed,
    };
    let message = match serde_json::from_slice(body) {
        Ok(ErrorMessage { message }) => message.chars().take(MAX_MESSAGE_CHARS).collect(),
        // A proxy, or another program.
        Err(_) => format!("the server responded with {status}"),
    };
    ServiceError {
        kind,
        message,
        source: None,
    }
}

/// Returns the error of a connection that cannot be opened, or was lost.
pub(crate) fn connection_error(error: reqwest::Error, url: &str) -> ServiceError {
    ServiceError {
        kind: ServiceErrorKind::Unavailable,
        message: format!("cannot reach the server at {url}"),
        source: Some(Box::new(error.without_url())),
    }
}

/// Returns the error of a server that does not respond in time.
pub(crate) fn silent(url: &str) -> ServiceError {
    ServiceError {
        kind: ServiceErrorKind::Unavailable,
        message: format!("the server at {url} does not respond"),
        source: None,
    }
}

/// Returns the error of a reply that is not what the API describes.
pub(crate) fn malformed(
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    url: &str,
) -> ServiceError {
    ServiceError {
        kind: ServiceErrorKind::Failed,
        message: format!("the server at {url} sent a malformed reply: is it Glovebox?"),
        source: Some(source.into()),
    }
}
