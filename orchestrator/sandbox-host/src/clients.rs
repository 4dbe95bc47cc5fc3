//! The clients of connections: whether they have authenticated, and which connections are closed in
//! favour of others. The action server does the same (`action-server/src/clients.rs`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Extensions;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Maximum number of unauthenticated connections. Idle connections, incomplete requests and slow
/// writers must not lock out orchestrators: a new connection closes the oldest one. An orchestrator
/// sends its first request immediately.
pub(super) const MAX_UNAUTHENTICATED: usize = 128;

/// Maximum time for a connection to send a request with a key.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(15);

/// The client of a connection. It is an extension of each request.
#[derive(Debug, Default)]
pub(super) struct Client {
    is_authenticated: AtomicBool,
    /// Its connection is closed without being drained.
    skips_drain: AtomicBool,
    close: CancellationToken,
}

impl Client {
    /// Marks the client of a request as authenticated.
    pub(super) fn authenticate(extensions: &Extensions) {
        if let Some(client) = extensions.get::<Arc<Self>>() {
            client.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Closes the connection without draining it: it has become a tunnel, or the host shuts down.
    pub(super) fn skip_drain(&self) {
        self.skips_drain.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_drained(&self) -> bool {
        !self.skips_drain.load(Ordering::Relaxed)
    }

    /// Completes when the connection must be closed: in favour of a new one, or after the timeout.
    pub(super) async fn closed(&self) {
        let timed_out = async {
            sleep(AUTHENTICATION_TIMEOUT).await;
            if self.is_authenticated.load(Ordering::Relaxed) {
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
pub(super) struct UnauthenticatedConnections(VecDeque<Weak<Client>>);

impl UnauthenticatedConnections {
    /// Adds a new connection. Closes the oldest one if there are too many.
    pub(super) fn add(&mut self) -> Arc<Client> {
        let client = Arc::<Client>::default();
        self.0.push_back(Arc::downgrade(&client));
        if self.0.len() > MAX_UNAUTHENTICATED {
            let is_unauthenticated =
                |client: &Arc<Client>| !client.is_authenticated.load(Ordering::Relaxed);
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

    fn is_closed(client: &Client) -> bool {
        client.close.is_cancelled()
    }

    #[test]
    fn oldest_connection_is_closed_when_there_are_too_many() {
        let mut connections = UnauthenticatedConnections::default();
        let known = connections.add();
        known.is_authenticated.store(true, Ordering::Relaxed);
        let silent: Vec<_> = (0..MAX_UNAUTHENTICATED)
            .map(|_| connections.add())
            .collect();
        assert!(silent.iter().all(|client| !is_closed(client)));
        let newest = connections.add();
        assert!(
            is_closed(&silent[0])
                && !is_closed(&silent[1])
                && !is_closed(&newest)
                && !is_closed(&known)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_closed_after_the_timeout_unless_authenticated() {
        let (silent, known) = (Client::default(), Client::default());
        let started = Instant::now();
        known.is_authenticated.store(true, Ordering::Relaxed);
        silent.closed().await;
        assert_eq!(started.elapsed(), AUTHENTICATION_TIMEOUT);
        assert!(
            tokio::time::timeout(Duration::from_secs(3600), known.closed())
                .await
                .is_err()
        );
    }
}
