//! The resolver that a guarded client opens its connections with.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::AddressPolicy;

/// Resolves names, and returns an error if one of the addresses is not allowed.
///
/// A mixture of allowed and other addresses is an error, too: it is a misconfiguration or an
/// attack.
pub struct AddressResolver {
    policy: AddressPolicy,
    source: Arc<dyn Resolve>,
}

/// Resolves names as the operating system does.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl AddressResolver {
    /// Creates a resolver that checks the addresses of `source`.
    pub fn new(policy: AddressPolicy, source: impl Resolve + 'static) -> Self {
        Self {
            policy,
            source: Arc::new(source),
        }
    }
}

impl Resolve for AddressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy.clone();
        let host = name.as_str().to_owned();
        let look_up = self.source.resolve(name);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = look_up.await?.collect();
            for address in &addresses {
                policy
                    .check_address(&host, address.ip())
                    .inspect_err(|refused| {
                        tracing::warn!(host, address = %refused.address, "refused to connect");
                    })?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
