//! The HTTP client: our TLS, no redirects.

use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::config::{ConfigError, Timeouts};

/// No redirects: one would turn the request into another, and carry the key elsewhere.
pub(crate) fn client(url: &Url, timeouts: &Timeouts) -> Result<Client, ConfigError> {
    let tls =
        tls::http_client(url.scheme()).map_err(|error| ConfigError::Client { source: Box::new(error) })?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(timeouts.connect)
        .redirect(Policy::none())
        .build()
        .map_err(|error| ConfigError::Client { source: Box::new(error) })
}
