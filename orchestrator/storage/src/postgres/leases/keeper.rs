//! Task that renews, watches and releases the leases of a process.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Leases, table};
use crate::postgres::database::DatabaseError;

/// Delay of the next renewal after one that failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Interval at which leases are checked that were not renewed. Far below the safety margin.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);

/// Time to release leases when the store is closed.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until `stop`, then releases what is left to release. Leases that are still held then are
/// lost. They are not released: their conversations were running, and other hosts find them when
/// they expire.
pub(super) async fn run(leases: Leases, stop: CancellationToken) {
    let work = async {
        tokio::join!(
            renew_repeatedly(&leases),
            watch(&leases),
            release_repeatedly(&leases)
        )
    };
    stop.run_until_cancelled(work).await;
    if timeout(RELEASE_TIMEOUT, release(&leases)).await.is_err() {
        tracing::warn!("leases were not released in time: they expire");
    }
    leases.held.lose_all();
}

async fn renew_repeatedly(leases: &Leases) {
    let mut delay = leases.timing.renewal_interval;
    loop {
        sleep(delay).await;
        delay = match renew(leases).await {
            Ok(()) => leases.timing.renewal_interval,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "cannot renew leases");
                RETRY_DELAY
            }
        };
    }
}

/// Renews all leases. Those that the database does not renew are lost.
async fn renew(leases: &Leases) -> Result<(), DatabaseError> {
    let held = leases.held.renewable();
    if held.is_empty() {
        return Ok(());
    }
    let requested = Instant::now();
    let renewed = table::renew(
        &leases.database,
        leases.host.id,
        &held,
        leases.timing.duration,
    )
    .await?;
    for lease in &held {
        if renewed.contains(lease) {
            leases
                .held
                .extend(lease, leases.timing.valid_until(requested));
        } else {
            leases.held.lose(lease);
        }
    }
    Ok(())
}

/// Reports leases that were not renewed in time, also while a renewal is still waiting for the
/// database.
async fn watch(leases: &Leases) {
    let mut ticks = interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        leases.held.lose_expired(Instant::now());
    }
}

async fn release_repeatedly(leases: &Leases) {
    loop {
        leases.held.wait_for_release().await;
        release(leases).await;
    }
}

/// Releases dropped leases with one attempt. If that fails, they expire.
async fn release(leases: &Leases) {
    let released = leases.held.released();
    if released.is_empty() {
        return;
    }
    if let Err(error) = table::release(&leases.database, leases.host.id, &released).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(
            error,
            count = released.len(),
            "cannot release leases: they expire"
        );
    }
    leases.held.forget_released(&released);
}
