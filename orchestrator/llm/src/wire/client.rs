//! The HTTP client.

use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use crate::config::{ConfigError, Timeouts};
use crate::connection_guard::ConnectionGuard;

/// Creates a client that follows no redirects, because one could send the key to another host.
pub(crate) fn new_client(
    url: &Url,
    timeouts: &Timeouts,
    guard: Option<&ConnectionGuard>,
) -> Result<Client, ConfigError> {
    let tls = tls::http_client(url.scheme()).map_err(|error| ConfigError::Client {
        source: Box::new(error),
    })?;
    let configure = |guard: &ConnectionGuard| guard.configure(Client::builder());
    guard
        .map_or_else(Client::builder, configure)
        .tls_backend_preconfigured(tls)
        .connect_timeout(timeouts.connect)
        .redirect(Policy::none())
        .build()
        .map_err(|error| ConfigError::Client {
            source: Box::new(error),
        })
}
