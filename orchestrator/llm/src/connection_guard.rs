//! Restriction of a model's connections.

use std::fmt;
use std::sync::Arc;

use reqwest::ClientBuilder;

/// Configures the HTTP client of a model whose address a user has chosen, so that it connects only where the operator allows.
/// Cheap to clone.
#[derive(Clone)]
pub struct ConnectionGuard(Arc<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>);

impl ConnectionGuard {
    /// Creates a guard, which may set the resolver and the proxies of the client. Its redirects are never followed.
    pub fn new(configure: impl Fn(ClientBuilder) -> ClientBuilder + Send + Sync + 'static) -> Self {
        Self(Arc::new(configure))
    }

    pub(crate) fn configure(&self, client: ClientBuilder) -> ClientBuilder {
        (self.0)(client)
    }
}

impl fmt::Debug for ConnectionGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ConnectionGuard").finish_non_exhaustive()
    }
}
