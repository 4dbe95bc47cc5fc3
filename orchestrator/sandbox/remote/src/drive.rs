//! Drives a connection without a task, which could outlive its caller.

use std::future::pending;

use futures_util::future::FusedFuture;

/// Completes `work`, which needs `driver` to be polled. The driver may complete first.
pub(super) async fn drive<T>(
    work: impl Future<Output = T>,
    driver: &mut (impl FusedFuture + Unpin),
) -> T {
    let drive_forever = async {
        driver.await;
        pending().await
    };
    tokio::select! {
        biased;
        output = work => output,
        never = drive_forever => never,
    }
}
