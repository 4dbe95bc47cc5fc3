//! Expires records when their retention has elapsed, even if no request is received.

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::registry::{Id, Registry};

/// Runs until `shutdown` is cancelled.
pub(crate) async fn expire_records<I: Id, E>(
    registry: Registry<I, E>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = next_expiry(&registry) => registry.table().expire(Instant::now()),
        }
    }
}

async fn next_expiry<I: Id, E>(registry: &Registry<I, E>) {
    let next = registry.table().next_expiry();
    match next {
        Some(at) => sleep_until(at).await,
        None => registry.record_ended().await,
    }
}
