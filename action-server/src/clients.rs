//! The clients of connections: whether they have authenticated, and which connections are closed in
//! favour of others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Maximum number of unauthenticated connections. Idle connections, incomplete requests and slow
/// writers must not lock out the host: a new connection closes the oldest one. A host sends its
/// first request immediately.
pub(crate) const MAX_UNAUTHENTICATED: usize = 128;

/// Maximum time for a connection to send a request with the key.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(15);

/// The client of a connection. It is an extension of each request.
#[derive(Debug, Default)]
pub(crate) struct ClientConnection {
    /// It has sent a complete request head with the key.
    is_admitted: AtomicBool,
    is_authenticated: AtomicBool,
    /// Its connection is closed without being drained.
    skips_drain: AtomicBool,
    close: CancellationToken,
}

impl ClientConnection {
    /// Exempts the client from the timeout, once it has sent a request head with the key.
    pub(crate) fn admit(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// Marks the client as authenticated: it has sent the key or, if there is no key, a complete
    /// request.
    pub(crate) fn authenticate(&self) {
        self.admit();
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Closes the connection without draining it: it has become a tunnel, or the server shuts down.
    pub(crate) fn skip_drain(&self) {
        self.skips_drain.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_drained(&self) -> bool {
        !self.skips_drain.load(Ordering::Relaxed)
    }

    /// Completes when the connection must be closed: in favour of a new one, or after the timeout.
    pub(crate) async fn closed(&self) {
        let timed_out = async {
            sleep(AUTHENTICATION_TIMEOUT).await;
            if self.is_admitted.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.close.cancelled() => {}
            () = timed_out => {}
        }
    }
}

/// The unauthenticated connections, oldest first. Some may have authenticated since.
#[derive(Default)]
pub(crate) struct UnauthenticatedConnections(VecDeque<Weak<ClientConnection>>);

impl UnauthenticatedConnections {
    /// Adds a new connection. Closes the oldest one if there are too many.
    pub(crate) fn add(&mut self) -> Arc<ClientConnection> {
        let client = Arc::<ClientConnection>::default();
        self.0.push_back(Arc::downgrade(&client));
        if self.0.len() > MAX_UNAUTHENTICATED {
            let is_unauthenticated =
                |client: &Arc<ClientConnection>| !client.is_authenticated.load(Ordering::Relaxed);
            self.0
                .retain(|client| client.upgrade().as_ref().is_some_and(is_unauthenticated));
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

    fn is_closed(client: &ClientConnection) -> bool {
        client.close.is_cancelled()
    }

    #[test]
    fn oldest_connection_is_closed_when_there_are_too_many() {
        let mut connections = UnauthenticatedConnections::default();
        let host = connections.add();
        host.authenticate();
        let silent: Vec<_> = (0..MAX_UNAUTHENTICATED)
            .map(|_| connections.add())
            .collect();
        assert!(silent.iter().all(|client| !is_closed(client)));
        let newest = connections.add();
        assert!(
            is_closed(&silent[0])
                && !is_closed(&silent[1])
                && !is_closed(&newest)
                && !is_closed(&host)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_closed_after_the_timeout_unless_admitted() {
        let (silent, admitted) = (ClientConnection::default(), ClientConnection::default());
        let started = Instant::now();
        admitted.admit();
        silent.closed().await;
        assert_eq!(started.elapsed(), AUTHENTICATION_TIMEOUT);
        assert!(
            tokio::time::timeout(Duration::from_secs(3600), admitted.closed())
                .await
                .is_err()
        );
    }
}
