//! Attempts to authenticate with a wrong key, per client. After some, the client has to wait,
//! whatever key it sends.
//!
//! Not the limiter of requests: that one cannot tell whether a client has to wait without counting
//! an attempt.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::rate_limit::client_network;

/// Maximum number of wrong keys of a client per window.
const MAX_ATTEMPTS: u32 = 10;

/// Time from the first wrong key until the count of a client restarts.
const WINDOW: Duration = Duration::from_mins(1);

/// Maximum number of clients in the table.
const MAX_CLIENTS: usize = 10_000;

/// The failed attempts of all clients.
#[derive(Default)]
pub(crate) struct FailedAttempts {
    /// A blocking mutex, because it is never held across an await.
    clients: Mutex<HashMap<IpAddr, Attempts>>,
}

#[derive(Clone, Copy)]
struct Attempts {
    count: u32,
    since: Instant,
}

impl Attempts {
    fn remaining(self) -> Duration {
        WINDOW.saturating_sub(self.since.elapsed())
    }
}

impl FailedAttempts {
    /// Returns the time that a client has to wait. `None` if it may send a key.
    pub(crate) fn wait_time(&self, address: IpAddr) -> Option<Duration> {
        let attempts = self.clients().get(&client_network(address)).copied()?;
        let remaining = attempts.remaining();
        (attempts.count >= MAX_ATTEMPTS && !remaining.is_zero()).then_some(remaining)
    }

    /// Records a wrong key.
    pub(crate) fn record(&self, address: IpAddr) {
        let address = client_network(address);
        let mut clients = self.clients();
        if clients.len() >= MAX_CLIENTS && !clients.contains_key(&address) {
            clients.retain(|_, attempts| !attempts.remaining().is_zero());
            // Full of others that have just failed: the oldest may try again.
            let oldest = clients
                .iter()
                .min_by_key(|(_, attempts)| attempts.since)
                .map(|(oldest, _)| *oldest);
            if let Some(oldest) = oldest.filter(|_| clients.len() >= MAX_CLIENTS) {
                clients.remove(&oldest);
            }
        }
        let new = Attempts {
            count: 0,
            since: Instant::now(),
        };
        let attempts = clients.entry(address).or_insert(new);
        if attempts.remaining().is_zero() {
            *attempts = new;
        }
        attempts.count = attempts.count.saturating_add(1);
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, Attempts>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn client_waits_for_the_end_of_the_window_after_many_failures() {
        let attempts = FailedAttempts::default();
        let [one, other] = ["1.2.3.4", "1.2.3.5"].map(|address| address.parse().unwrap());
        for number in 0..MAX_ATTEMPTS {
            assert_eq!(attempts.wait_time(one), None, "{number}");
            attempts.record(one);
        }
        assert_eq!(attempts.wait_time(one), Some(WINDOW));
        assert_eq!(attempts.wait_time(other), None);
        tokio::time::advance(WINDOW - Duration::from_secs(1)).await;
        assert_eq!(attempts.wait_time(one), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(attempts.wait_time(one), None);
        attempts.record(one);
        assert_eq!(attempts.wait_time(one), None, "a new window");
    }

    #[tokio::test(start_paused = true)]
    async fn table_of_clients_is_bounded() {
        let attempts = FailedAttempts::default();
        for number in 0..MAX_CLIENTS as u32 + 10 {
            attempts.record(IpAddr::V4(number.into()));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(attempts.clients().len(), MAX_CLIENTS);
        assert!(
            !attempts.clients().contains_key(&IpAddr::V4(0.into())),
            "the oldest is gone"
        );
    }
}
