//! Removes idle sandboxes and adopts unknown ones, at startup and periodically.

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::sandbox::{SandboxError, SandboxSummary};
use tokio::time::{Instant, sleep};

use super::Shared;

/// Half of the idle timeout, within these limits.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(60);
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(250);

pub(super) async fn sweep(shared: &Shared) -> Result<(), SandboxError> {
    let listed_at = Instant::now();
    let summaries = shared.provider.list().await?;
    shared.registry.remove_missing(&summaries, listed_at);
    let adopted = shared.registry.adopt(&summaries);
    if adopted > 0 {
        tracing::info!(adopted, "adopted existing sandboxes");
    }
    let removals = Mutex::new(Vec::new());
    let is_used = |summary: SandboxSummary| {
        let removal = shared
            .registry
            .start_removal_if_idle(&summary, shared.config.idle_timeout);
        let is_used = removal.is_none() && (shared.config.is_warm_in_use)(&summary);
        removals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(removal);
        ready(is_used)
    };
    let removed = engine::sandbox::sweep(&*shared.provider, is_used).await?;
    for removal in removals
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
    {
        // One that could not be removed is leased again until the next sweep.
        if removed.contains(removal.sandbox()) {
            removal.done();
        }
    }
    Ok(())
}

/// Sweeps periodically until the host shuts down.
pub(super) async fn run(shared: Arc<Shared>) {
    let interval = (shared.config.idle_timeout / 2).clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL);
    let sweeping = async {
        loop {
            sleep(interval).await;
            if let Err(error) = sweep(&shared).await {
                tracing::warn!(%error, "cannot sweep sandboxes");
            }
        }
    };
    shared.stop.run_until_cancelled(sweeping).await;
}

/// Removes every sandbox of this host, including those that sweeps keep.
pub(super) async fn remove_all(shared: &Shared) -> Result<(), SandboxError> {
    for summary in shared.provider.list().await? {
        if let Err(error) = shared.provider.destroy(&summary.sandbox).await {
            tracing::warn!(sandbox = %summary.sandbox, %error, "cannot remove a sandbox at shutdown");
        }
    }
    Ok(())
}
