//! Forgets ended actions when their time is over, also when nobody asks for anything. Sleeps until then; ends with its
//! token.

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Ledger;

/// Runs until `shutdown`.
pub(crate) async fn forget_the_expired(ledger: Ledger, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = next_expiry(&ledger) => ledger.table().expire(Instant::now()),
        }
    }
}

async fn next_expiry(ledger: &Ledger) {
    let next = ledger.table().next_expiry();
    match next {
        Some(at) => sleep_until(at).await,
        None => ledger.shared.ended.notified().await,
    }
}
