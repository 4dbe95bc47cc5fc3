//! Stops long operations when the client disconnects or a deadline is exceeded.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Checked between small steps. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal {
    cancelled: CancellationToken,
    deadline: Instant,
}

impl StopSignal {
    pub(crate) fn new(cancelled: CancellationToken, time: Duration) -> Self {
        Self {
            cancelled,
            deadline: Instant::now() + time,
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.cancelled.is_cancelled() || Instant::now() >= self.deadline
    }

    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::new(CancellationToken::new(), Duration::from_secs(3600))
    }
}
