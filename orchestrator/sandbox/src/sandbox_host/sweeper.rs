//! Removes what nobody uses, at the start and on a timer, and takes up what is there and not known.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{SandboxError, SandboxSummary};
use tokio::time::{Instant, sleep};

use super::Shared;

/// Between two looks, at most; a shorter idle limit is looked at twice in its time.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

/// Looks once.
pub(super) async fn sweep(shared: &Shared) -> Result<(), SandboxError> {
    let listed_at = Instant::now();
    let placed = shared.provider.list().await?;
    shared.register.forget_gone(&placed, listed_at);
    let adopted = shared.register.adopt(&placed);
    if adopted > 0 {
        tracing::info!(adopted, "took up sandboxes that were there");
    }
    let removals = Mutex::new(Vec::new());
    let is_used = |placed: &SandboxSummary| {
        let removal = shared.register.begin_removal_if_unused(placed, shared.config.idle_timeout);
        let is_used = removal.is_none();
        removals.lock().unwrap_or_else(PoisonError::into_inner).extend(removal);
        is_used
    };
    let removed = engine::sandbox::sweep(&*shared.provider, &is_used).await?;
    for removal in removals.into_inner().unwrap_or_else(PoisonError::into_inner) {
        // What could not be removed is lent again, and looked at the next time.
        if removed.contains(removal.sandbox()) {
            removal.done();
        }
    }
    Ok(())
}

/// Looks again and again until the host ends.
pub(super) async fn sweep_on(shared: Arc<Shared>) {
    let pause = (shared.config.idle_timeout / 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    let looking = async {
        loop {
            sleep(pause).await;
            if let Err(error) = sweep(&shared).await {
                tracing::warn!(%error, "looking for sandboxes that nobody uses");
            }
        }
    };
    shared.stop.run_until_cancelled(looking).await;
}

/// Removes every sandbox of this host: also those that were to stay.
pub(super) async fn remove_all(shared: &Shared) -> Result<(), SandboxError> {
    for placed in shared.provider.list().await? {
        if let Err(error) = shared.provider.destroy(&placed.sandbox).await {
            tracing::warn!(sandbox = %placed.sandbox, %error, "removing a sandbox at the end");
        }
    }
    Ok(())
}
