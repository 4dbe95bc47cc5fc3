//! Servers behind HTTP: the client that speaks to one, and nobody else.
//!
//! A redirect is followed only where it leads to the same scheme, host and port:
//! the key goes nowhere else.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use secrecy::{ExposeSecret as _, SecretString};

use super::LONGEST_MESSAGE;
use crate::config::Remote;

/// For a connection to be there.
const CONNECT: Duration = Duration::from_secs(10);

/// Redirects that one request follows: what a path without its slash takes.
const MOST_REDIRECTS: usize = 3;

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("the HTTP client: {0}")]
    Client(String),
    #[error("the header {0} of its configuration cannot be sent")]
    Header(String),
}

pub(super) fn client(remote: &Remote) -> Result<Client, HttpError> {
    let tls = tls::http_client(remote.url.scheme()).map_err(|error| HttpError::Client(error.to_string()))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT)
        .redirect(Policy::custom(|attempt| {
            let is_near = attempt.previous().iter().all(|previous| is_same_place(previous, attempt.url()));
            if is_near && attempt.previous().len() <= MOST_REDIRECTS {
                attempt.follow()
            } else {
                attempt.stop()
            }
        }))
        .default_headers(headers(remote)?.into_iter().collect())
        .build()
        .map_err(|error| HttpError::Client(super::chain(&error)))
}

/// The headers are the client's.
pub(super) fn streamable(remote: &Remote) -> StreamableHttpClientTransportConfig {
    StreamableHttpClientTransportConfig::with_uri(remote.url.as_str()).max_sse_event_size(LONGEST_MESSAGE)
}

pub(super) fn is_same_place(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

fn headers(remote: &Remote) -> Result<HashMap<HeaderName, HeaderValue>, HttpError> {
    let bearer = remote.api_key.as_ref().map(|key| {
        let value = SecretString::from(format!("Bearer {}", key.expose_secret()));
        ("authorization".to_owned(), value)
    });
    let configured = remote.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
    bearer
        .into_iter()
        .chain(configured)
        .map(|(name, value)| {
            let unusable = || HttpError::Header(name.clone());
            let header: HeaderName = name.parse().map_err(|_| unusable())?;
            let mut value: HeaderValue = value.expose_secret().parse().map_err(|_| unusable())?;
            value.set_sensitive(true);
            Ok((header, value))
        })
        .collect()
}
