//! How many connections there may be: of all clients, and of each.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client_address::TrustedProxies;
use crate::keyed_permits::KeyedPermits;
use crate::rate_limit::client_network;

/// Maximum number of connections, if there are descriptors for them. Further ones wait in the
/// socket's queue.
const MAX_CONNECTIONS: usize = 8192;

/// Part of all connections that one client may have. A page has two for each of its sockets while
/// it upgrades them.
const CLIENT_SHARE: usize = 4;

/// Bounds of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    pub(super) total: usize,
    pub(super) per_client: usize,
}

impl ConnectionLimits {
    /// Returns the limits of a process that may have this number of descriptors. Half of them
    /// remain for the store and the sandboxes. `None` if the number is not limited.
    pub(super) fn for_descriptors(descriptors: Option<usize>) -> Self {
        let total = descriptors.map_or(MAX_CONNECTIONS, |max| (max / 2).clamp(1, MAX_CONNECTIONS));
        Self {
            total,
            per_client: total.div_ceil(CLIENT_SHARE),
        }
    }
}

/// Permits of connections.
#[derive(Clone)]
pub(super) struct Admission {
    connections: Arc<Semaphore>,
    clients: KeyedPermits<IpAddr>,
    proxies: TrustedProxies,
}

impl Admission {
    /// Creates the permits. The proxies' addresses are not limited, because each stands for many
    /// clients.
    pub(super) fn new(limits: ConnectionLimits, proxies: TrustedProxies) -> Self {
        let connections = Arc::new(Semaphore::new(limits.total));
        Self {
            connections,
            clients: KeyedPermits::new(limits.per_client),
            proxies,
        }
    }

    /// Waits until there are fewer connections than the maximum.
    pub(super) async fn wait_for_connection(&self) -> Option<OwnedSemaphorePermit> {
        // An error means that the semaphore is closed, which it never is.
        Arc::clone(&self.connections).acquire_owned().await.ok()
    }

    /// Returns the permit of a connection from an address. `None` if its client has as many
    /// connections as one may have.
    pub(super) fn admit(&self, address: IpAddr) -> Option<ClientPermit> {
        let Some(client) = self.limited_client(address) else {
            return Some(ClientPermit::Unlimited);
        };
        self.clients
            .try_acquire(client_network(client))
            .map(ClientPermit::Limited)
    }

    /// Returns the client with an address. `None` if it is a proxy.
    pub(super) fn limited_client(&self, address: IpAddr) -> Option<IpAddr> {
        Some(address.to_canonical()).filter(|client| !self.proxies.contains(*client))
    }

    #[cfg(test)]
    pub(super) fn available_connections(&self) -> usize {
        self.connections.available_permits()
    }
}

/// The right of a client to have one more connection, until it is dropped.
pub(super) enum ClientPermit {
    /// Of a client that may have a limited number.
    Limited(#[expect(dead_code, reason = "its drop ends the right")] OwnedSemaphorePermit),
    /// Of a proxy.
    Unlimited,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_rest() {
        let limits = |descriptors| ConnectionLimits::for_descriptors(descriptors);
        assert_eq!(
            limits(None),
            ConnectionLimits {
                total: 8192,
                per_client: 2048
            }
        );
        assert_eq!(limits(Some(1 << 20)), limits(None));
        assert_eq!(
            limits(Some(1024)),
            ConnectionLimits {
                total: 512,
                per_client: 128
            }
        );
        assert_eq!(
            limits(Some(1)),
            ConnectionLimits {
                total: 1,
                per_client: 1
            }
        );
    }

    #[test]
    fn proxy_has_no_limit_of_its_own() {
        let limits = ConnectionLimits {
            total: 8,
            per_client: 1,
        };
        let admission =
            Admission::new(limits, TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]));
        let [proxy, mapped, client] =
            ["10.0.0.1", "::ffff:10.0.0.1", "192.0.2.1"].map(|address| address.parse().unwrap());
        let held = [proxy, proxy, mapped, client].map(|address| admission.admit(address).unwrap());
        assert!(admission.admit(client).is_none());
        drop(held);
        assert!(admission.admit(client).is_some());
    }
}
