//! Drives a connection as long as somebody waits for what goes over it: no task that could outlive its caller.

use std::future::pending;

use futures_util::future::FusedFuture;

/// Waits for `work`, which needs `driver` to be polled. The driver may end first, and is polled no more then.
pub(super) async fn driven<T>(work: impl Future<Output = T>, driver: &mut (impl FusedFuture + Unpin)) -> T {
    let drive = async {
        driver.await;
        pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = drive => never,
    }
}
