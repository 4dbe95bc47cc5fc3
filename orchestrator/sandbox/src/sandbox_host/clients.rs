//! The clients of connections: which of them have shown a key, and which connections are closed for those that have. The
//! action server does the same (`action-server/src/clients.rs`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::Extensions;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections that have not shown a key. Any number of silent ones, half requests and slow writers must
/// leave room for those that do: the oldest is closed for the newest. An orchestrator sends its first request at once.
pub(super) const MAX_UNAUTHENTICATED: usize = 128;

/// How long a connection may be open without having shown a key.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(15);

/// The client of a connection; an extension of its requests.
#[derive(Debug, Default)]
pub(super) struct Client {
    is_authenticated: AtomicBool,
    /// Its connection is closed without being drained.
    ends_at_once: AtomicBool,
    close: CancellationToken,
}

impl Client {
    /// The client of the request with these extensions has shown a key.
    pub(super) fn authenticate(extensions: &Extensions) {
        if let Some(client) = extensions.get::<Arc<Self>>() {
            client.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Its connection has become a tunnel, or the host ends.
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
            if self.is_authenticated.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.close.cancelled() => {}
            () = silent => {}
        }
    }
}

/// The connections that have not shown a key, oldest first. Some may have shown it since.
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
    fn the_oldest_connection_without_a_key_is_closed() {
        let mut connections = UnauthenticatedConnections::default();
        let known = connections.add();
        known.is_authenticated.store(true, Ordering::Relaxed);
        let silent: Vec<_> = (0..MAX_UNAUTHENTICATED).map(|_| connections.add()).collect();
        assert!(silent.iter().all(|client| !is_closed(client)));
        let newest = connections.add();
        assert!(is_closed(&silent[0]) && !is_closed(&silent[1]) && !is_closed(&newest) && !is_closed(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_in_time_without_a_key() {
        let (silent, known) = (Client::default(), Client::default());
        let started = Instant::now();
        known.is_authenticated.store(true, Ordering::Relaxed);
        silent.closed().await;
        assert_eq!(started.elapsed(), AUTHENTICATION_TIMEOUT);
        assert!(tokio::time::timeout(Duration::from_secs(3600), known.closed()).await.is_err());
    }
}
