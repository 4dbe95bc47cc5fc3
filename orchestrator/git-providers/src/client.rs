//! The HTTP client that the calls of all users share.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Client;
use rustls::ClientConfig;

use crate::address_policy::AddressPolicy;
use crate::base_urls::BaseUrls;

/// Time limits and delays of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    /// Maximum time to connect, name resolution included.
    pub connect_timeout: Duration,
    /// Maximum time of one attempt, from the request to the end of the response.
    pub attempt_timeout: Duration,
    /// Maximum time of a call, with all of its requests and retries.
    pub call_timeout: Duration,
    /// Delay before the first retry. Doubled for each further one.
    pub retry_delay: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(20),
            call_timeout: Duration::from_secs(60),
            retry_delay: Duration::from_millis(250),
        }
    }
}

/// Holds connections to providers, and what is the same for all users. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GitClient {
    pub(crate) http: Client,
    pub(crate) shared: Arc<SharedSettings>,
}

/// The settings of the operator.
#[derive(Debug)]
pub(crate) struct SharedSettings {
    pub(crate) policy: AddressPolicy,
    pub(crate) base_urls: BaseUrls,
    pub(crate) limits: RequestLimits,
}

/// The error of a client that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the HTTP client for git providers")]
pub struct ClientError {
    source: reqwest::Error,
}

impl GitClient {
    /// Creates a client. Opens no connection. `policy` applies to the base URLs, too.
    ///
    /// # Errors
    /// The TLS configuration is of another version of rustls.
    pub fn new(
        tls: ClientConfig,
        policy: AddressPolicy,
        base_urls: BaseUrls,
        limits: RequestLimits,
    ) -> Result<Self, ClientError> {
        let http = policy
            .guard(Client::builder())
            .tls_backend_preconfigured(tls)
            .connect_timeout(limits.connect_timeout)
            .user_agent(concat!("glovebox/", env!("CARGO_PKG_VERSION"))) // GitHub rejects requests without one
            .build()
            .map_err(|source| ClientError { source })?;
        Ok(Self {
            http,
            shared: Arc::new(SharedSettings {
                policy,
                base_urls,
                limits,
            }),
        })
    }
}
