//! The HTTP client.

use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::config::{ConfigError, Timeouts};

/// Creates a client that follows no redirects, because one could send the key to another host.
pub(crate) fn new_client(url: &Url, timeouts: &Timeouts) -> Result<Client, ConfigError> {
    let tls =
        tls::http_client(url.scheme()).map_err(|error| ConfigError::Client { source: Box::new(error) })?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(timeouts.connect)
        .redirect(Policy::none())
        .build()
        .map_err(|error| ConfigError::Client { source: Box::new(error) })
}
