//! The rate of requests per client: above the limit they are delayed, above twice the limit
//! rejected, as in V0.
//!
//! The table of clients is bounded. While it is full, all clients share one entry.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use governor::clock::MonotonicClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use tokio::time::{Instant, sleep};

use crate::client_address::Client;
use crate::error::ApiError;
use crate::state::ServerState;

/// Maximum number of clients in the table.
const MAX_CLIENTS: usize = 10_000;

/// Delay of each request above the limit, as in V0.
const DELAY: Duration = Duration::from_secs(1);

/// Interval at which a full table is searched for clients that have sent nothing for a while.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(1);

/// Paths that are not limited: probes of orchestrators, and the parts of a page, which a browser
/// requests together.
const UNLIMITED_PATHS: [&str; 5] = ["/alive", "/health", "/ready", "/metrics", "/server_info"];
const UNLIMITED_FOLDER: &str = "/assets/";

/// Maximum number of requests per second and client before they are delayed. Above twice as many,
/// they are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestRate(NonZeroU32);

impl RequestRate {
    /// Returns a limit. `None` for 0.
    pub fn new(per_second: u32) -> Option<Self> {
        NonZeroU32::new(per_second).map(Self)
    }
}

type Limiter = RateLimiter<Bucket, DashMapStateStore<Bucket>, MonotonicClock>;

/// Clients that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Bucket {
    Client(IpAddr),
    /// All clients while the table is full.
    All,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Serve,
    Delay,
    Reject,
}

/// Counts requests per client.
pub(crate) struct RateLimits {
    delaying: Limiter,
    rejecting: Limiter,
    /// When the table was last searched. A blocking mutex, because it is never held across an
    /// await.
    cleaned_at: Mutex<Instant>,
}

impl RateLimits {
    pub(crate) fn new(RequestRate(rate): RequestRate) -> Self {
        let limiter = |rate| {
            RateLimiter::new(
                Quota::per_second(rate),
                DashMapStateStore::default(),
                MonotonicClock,
            )
        };
        Self {
            delaying: limiter(rate),
            rejecting: limiter(rate.saturating_add(rate.get())),
            cleaned_at: Mutex::new(Instant::now()),
        }
    }

    fn decide(&self, address: IpAddr) -> Decision {
        let bucket = self.bucket(address);
        if self.rejecting.check_key(&bucket).is_err() {
            return Decision::Reject;
        }
        if self.delaying.check_key(&bucket).is_ok() {
            Decision::Serve
        } else {
            Decision::Delay
        }
    }

    fn bucket(&self, address: IpAddr) -> Bucket {
        if self.rejecting.len() < MAX_CLIENTS {
            return Bucket::Client(client_network(address));
        }
        self.clean_up();
        Bucket::All
    }

    /// Removes clients that have sent nothing for a while.
    fn clean_up(&self) {
        let Ok(mut cleaned_at) = self.cleaned_at.try_lock() else {
            return;
        };
        if cleaned_at.elapsed() >= CLEANUP_INTERVAL {
            self.delaying.retain_recent();
            self.rejecting.retain_recent();
            *cleaned_at = Instant::now();
        }
    }
}

/// Returns the part of an address by which clients are counted. A client of IPv6 usually has a
/// whole /64.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
    }
}

/// Delays and rejects the requests of clients that send too many.
pub(crate) async fn limit(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let is_unlimited = UNLIMITED_PATHS.contains(&path) || path.starts_with(UNLIMITED_FOLDER);
    let limits = state.rate_limits.as_ref().filter(|_| !is_unlimited);
    let client = Client::find(request.extensions()).zip(limits);
    match client.map_or(Decision::Serve, |(client, limits)| {
        limits.decide(client.address)
    }) {
        Decision::Serve => {}
        Decision::Delay => sleep(DELAY).await,
        Decision::Reject => return Err(ApiError::TooManyRequests),
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_delayed_then_rejected_per_client() {
        let limits = RateLimits::new(RequestRate::new(10).unwrap());
        let [one, other] = ["1.2.3.4", "2001:db8::1"].map(|address| address.parse().unwrap());
        for number in 1..=10 {
            assert_eq!(limits.decide(one), Decision::Serve, "{number}");
        }
        for number in 11..=20 {
            let decision = limits.decide(one);
            // A slow machine may have taken so long that another one is allowed.
            assert!(
                [Decision::Delay, Decision::Serve].contains(&decision),
                "{number}: {decision:?}"
            );
        }
        let later: Vec<_> = (0..20).map(|_| limits.decide(one)).collect();
        assert!(later.contains(&Decision::Reject), "{later:?}");
        assert_eq!(limits.decide(other), Decision::Serve);
        assert_eq!(
            client_network("2001:db8:1:2:3:4:5:6".parse().unwrap()).to_string(),
            "2001:db8:1:2::"
        );
    }

    #[test]
    fn table_of_clients_is_bounded() {
        let limits = RateLimits::new(RequestRate::new(1).unwrap());
        for number in 0..MAX_CLIENTS as u32 + 1000 {
            limits.decide(IpAddr::V4(number.into()));
        }
        assert!(
            limits.rejecting.len() <= MAX_CLIENTS + 1,
            "{}",
            limits.rejecting.len()
        );
        assert_eq!(
            limits.decide("1.2.3.4".parse().unwrap()),
            Decision::Reject,
            "shared with the others"
        );
    }
}
