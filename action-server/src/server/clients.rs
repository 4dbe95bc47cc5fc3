//! The clients of connections: which of them have shown the key, and which connections are closed for those that have.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections that have not shown the key. Any number of silent ones, half requests and slow writers
/// must leave room for the host: the oldest is closed for the newest. A host sends its first request at once.
pub(super) const MAX_UNAUTHENTICATED: usize = 128;

/// How long a connection may be open without having shown the key.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(15);

/// The client of a connection; an extension of its requests.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// The head of one of its requests was in order.
    is_admitted: AtomicBool,
    is_authenticated: AtomicBool,
    /// Its connection is closed without being drained.
    ends_at_once: AtomicBool,
    close: CancellationToken,
}

impl Client {
    /// The head of one of its requests is in order: it is no longer subject to the timeout.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// It has shown the key or, if there is no key, sent a whole request.
    pub(crate) fn authenticate(&self) {
        self.admit();
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Its connection has become a tunnel, or the server ends.
    pub(super) fn end_at_once(&self) {
        self.ends_at_once.store(true, Ordering::Relaxed);
    }

    pub(super) fn lingers(&self) -> bool {
        !self.ends_at_once.load(Ordering::Relaxed)
    }

    /// Returns when its connection is to be closed: in favour of a newer one, or after the timeout.
    pub(super) async fn closed(&self) {
        let silent = async {
            sleep(AUTHENTICATION_TIMEOUT).await;
            if self.is_admitted.load(Ordering::Relaxed) {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = self.close.cancelled() => {}
            () = silent => {}
        }
    }
}

/// The connections that have not shown the key, oldest first. Some may have shown it since.
#[derive(Default)]
pub(super) struct UnauthenticatedConnections(VecDeque<Weak<Client>>);

impl UnauthenticatedConnections {
    /// Adds a new connection. Closes the oldest one if there are too many.
    pub(super) fn add(&mut self) -> Arc<Client> {
        let client = Arc::<Client>::default();
        self.0.push_back(Arc::downgrade(&client));
        if self.0.len() > MAX_UNAUTHENTICATED {
            let is_unauthenticated = |client: &Arc<Client>| !client.is_authenticated.load(Ordering::Relaxed);
            self.0.retain(|client| client.upgrade().as_ref().is_some_and(is_unauthenticated));
        }
        if self.0.len() > MAX_UNAUTHENTICATED
            && let Some(oldest) = self.0.pop_front().and_then(|oldest| oldest.upgrade())
        {
            oldest.close.cancel();
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn is_closed(client: &Client) -> bool {
        client.close.is_cancelled()
    }

    #[test]
    fn the_oldest_connection_without_the_key_is_closed() {
        let mut connections = UnauthenticatedConnections::default();
        let host = connections.add();
        host.authenticate();
        let silent: Vec<_> = (0..MAX_UNAUTHENTICATED).map(|_| connections.add()).collect();
        assert!(silent.iter().all(|client| !is_closed(client)));
        let newest = connections.add();
        assert!(is_closed(&silent[0]) && !is_closed(&silent[1]) && !is_closed(&newest) && !is_closed(&host));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_in_time_unless_admitted() {
        let (silent, admitted) = (Client::default(), Client::default());
        let started = Instant::now();
        admitted.admit();
        silent.closed().await;
        assert_eq!(started.elapsed(), AUTHENTICATION_TIMEOUT);
        assert!(tokio::time::timeout(Duration::from_secs(3600), admitted.closed()).await.is_err());
    }
}
