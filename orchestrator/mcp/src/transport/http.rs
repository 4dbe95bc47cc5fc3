//! HTTP client of a server. Follows redirects to the same origin only, so that the key is sent
//! nowhere else.

use std::time::Duration;

use engine::errors::format_chain;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use secrecy::{ExposeSecret as _, SecretString};

use super::MAX_MESSAGE_BYTES;
use crate::config::Remote;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of redirects of a request, for example to a path with a trailing slash.
const MAX_REDIRECTS: usize = 3;

/// Error of a configuration with which no request can be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("cannot create the HTTP client: {0}")]
    Client(String),
    #[error("the configured header {0} is invalid")]
    Header(String),
}

pub(super) fn client(remote: &Remote) -> Result<Client, HttpError> {
    let tls = tls::http_client(remote.url.scheme())
        .map_err(|error| HttpError::Client(error.to_string()))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::custom(|attempt| {
            let is_same = attempt
                .previous()
                .iter()
                .all(|previous| is_same_origin(previous, attempt.url()));
            if is_same && attempt.previous().len() <= MAX_REDIRECTS {
                attempt.follow()
            } else {
                attempt.stop()
            }
        }))
        .default_headers(headers(remote)?)
        .build()
        .map_err(|error| HttpError::Client(format_chain(&error)))
}

/// Returns the transport's configuration. The client adds the headers.
pub(super) fn streamable(remote: &Remote) -> StreamableHttpClientTransportConfig {
    StreamableHttpClientTransportConfig::with_uri(remote.url.as_str())
        .max_sse_event_size(MAX_MESSAGE_BYTES)
}

pub(super) fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

fn headers(remote: &Remote) -> Result<HeaderMap, HttpError> {
    let bearer = remote
        .api_key
        .as_ref()
        .map(|key| SecretString::from(format!("Bearer {}", key.expose_secret())));
    let authorization = bearer.iter().map(|value| ("authorization", value));
    let configured = remote
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value));
    let mut headers = HeaderMap::new();
    for (name, value) in authorization.chain(configured) {
        let invalid = || HttpError::Header(name.to_owned());
        let header: HeaderName = name.parse().map_err(|_| invalid())?;
        let mut value: HeaderValue = value.expose_secret().parse().map_err(|_| invalid())?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}
