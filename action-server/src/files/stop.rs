//! When work that may be long gives up: its client is gone, or it has taken too long.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Asked between small steps. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    cancelled: CancellationToken,
    deadline: Instant,
}

impl Stop {
    pub(crate) fn new(cancelled: CancellationToken, time: Duration) -> Self {
        Self { cancelled, deadline: Instant::now() + time }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.cancelled.is_cancelled() || Instant::now() >= self.deadline
    }

    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::new(CancellationToken::new(), Duration::from_secs(3600))
    }
}
