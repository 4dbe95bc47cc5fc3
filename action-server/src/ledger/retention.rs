//! Forgets what has ended when their time is over, also when nobody asks for anything. Sleeps until then; ends with its
//! token.

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::register::{Id, Register};

/// Runs until `shutdown`.
pub(crate) async fn forget_the_expired<I: Id, E>(register: Register<I, E>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = next_expiry(&register) => register.table().expire(Instant::now()),
        }
    }
}

async fn next_expiry<I: Id, E>(register: &Register<I, E>) {
    let next = register.table().next_expiry();
    match next {
        Some(at) => sleep_until(at).await,
        None => register.something_ended().await,
    }
}
