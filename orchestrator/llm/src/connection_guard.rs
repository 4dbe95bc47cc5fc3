//! Restriction of a model's connections.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use reqwest::ClientBuilder;

/// Configures the HTTP client of a model whose address a user has chosen, so that it connects only
/// where the operator allows. Cheap to clone.
#[derive(Clone)]
pub struct ConnectionGuard {
    configure: Arc<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>,
    is_refusal: fn(&(dyn Error + 'static)) -> bool,
}

impl ConnectionGuard {
    /// Creates a guard, which may set the resolver and the proxies of the client. Its redirects are
    /// never followed. `is_refusal` recognizes the resolver's error for an address that is not
    /// allowed.
    pub fn new(
        configure: impl Fn(ClientBuilder) -> ClientBuilder + Send + Sync + 'static,
        is_refusal: fn(&(dyn Error + 'static)) -> bool,
    ) -> Self {
        Self {
            configure: Arc::new(configure),
            is_refusal,
        }
    }

    /// Whether the guard has caused an error.
    pub(crate) fn has_refused(&self, error: &(dyn Error + 'static)) -> bool {
        std::iter::successors(Some(error), |&error| error.source()).any(self.is_refusal)
    }

    pub(crate) fn configure(&self, client: ClientBuilder) -> ClientBuilder {
        (self.configure)(client)
    }
}

impl fmt::Debug for ConnectionGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ConnectionGuard")
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use engine::llm::LlmErrorKind;
    use reqwest::Client;
    use reqwest::dns::{Name, Resolve, Resolving};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("not allowed")]
    struct NotAllowed;

    /// Refuses the host `refused`, and knows no other.
    struct Resolver;

    impl Resolve for Resolver {
        fn resolve(&self, name: Name) -> Resolving {
            let error: Box<dyn Error + Send + Sync> = match name.as_str() {
                "refused" => NotAllowed.into(),
                _ => "no such host".into(),
            };
            Box::pin(std::future::ready(Err(error)))
        }
    }

    #[tokio::test]
    async fn refused_address_is_recognized_and_not_retried() {
        let guard = ConnectionGuard::new(
            |client| client.dns_resolver(Resolver).no_proxy(),
            |error| error.is::<NotAllowed>(),
        );
        let client = guard.configure(Client::builder());
        let client = client
            .tls_backend_preconfigured(tls::http_client("http").unwrap())
            .build()
            .unwrap();
        for (host, is_refused) in [("refused", true), ("unknown", false)] {
            let error = client
                .get(format!("http://{host}/"))
                .send()
                .await
                .unwrap_err();
            assert_eq!(guard.has_refused(&error), is_refused, "{error:?}");
        }
        assert!(!LlmErrorKind::AddressRefused.is_transient());
    }
}
