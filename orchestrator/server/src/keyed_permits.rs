//! A maximum for each client, so that one client leaves something to the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::rate_limit::client_network;

/// Number of entries above which those without a permit are removed.
const MIN_CLEANUP_SIZE: usize = 1024;

/// Permits of each client. Not governor, which bounds a rate. The table has no more clients than have permits, and some more.
#[derive(Clone)]
pub(super) struct ClientPermits {
    max_per_client: usize,
    table: Arc<Mutex<Table>>,
}

/// A blocking mutex guards it, because it is never held across an await.
struct Table {
    /// Those without permits are removed when the table has grown to twice its size after the last clean-up, so that the cost
    /// for each new client is constant.
    clients: HashMap<IpAddr, Arc<Semaphore>>,
    next_cleanup_size: usize,
}

impl ClientPermits {
    pub(super) fn new(max_per_client: usize) -> Self {
        let table = Table { clients: HashMap::new(), next_cleanup_size: MIN_CLEANUP_SIZE };
        Self { max_per_client, table: Arc::new(Mutex::new(table)) }
    }

    /// Returns a permit. `None` if the client has as many as it may have.
    pub(super) fn try_acquire(&self, client: IpAddr) -> Option<OwnedSemaphorePermit> {
        self.permits(client).try_acquire_owned().ok()
    }

    /// Waits for a permit of the client.
    pub(super) async fn acquire(&self, client: IpAddr) -> Option<OwnedSemaphorePermit> {
        // An error means that the semaphore is closed, which it never is.
        self.permits(client).acquire_owned().await.ok()
    }

    fn permits(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if table.clients.len() >= table.next_cleanup_size {
            // Each permit, and each task that waits for one, has a reference.
            table.clients.retain(|_, permits| Arc::strong_count(permits) > 1);
            table.next_cleanup_size = MIN_CLEANUP_SIZE.max(2 * table.clients.len());
        }
        let new = || Arc::new(Semaphore::new(self.max_per_client));
        Arc::clone(table.clients.entry(client_network(client)).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_maximum() {
        let permits = ClientPermits::new(2);
        let [one, other] = ["1.2.3.4", "2001:db8::1"].map(|address| address.parse().unwrap());
        let mut held: Vec<_> = (0..2).map(|_| permits.try_acquire(one).unwrap()).collect();
        assert!(permits.try_acquire(one).is_none());
        held.push(permits.try_acquire(other).unwrap());
        held.push(permits.try_acquire("2001:db8::2".parse().unwrap()).unwrap());
        assert!(permits.try_acquire(other).is_none(), "a client of IPv6 has a whole /64");
        drop(held.remove(0));
        assert!(permits.try_acquire(one).is_some());
    }

    #[test]
    fn clients_without_permits_are_forgotten() {
        let permits = ClientPermits::new(1);
        let address = |number: usize| IpAddr::V4((number as u32).into());
        let held = permits.try_acquire(address(0)).unwrap();
        for number in 1..10 * MIN_CLEANUP_SIZE {
            assert!(permits.try_acquire(address(number)).is_some());
        }
        assert!(permits.table.lock().unwrap().clients.len() <= 2 * MIN_CLEANUP_SIZE);
        assert!(permits.try_acquire(address(0)).is_none());
        drop(held);
    }
}
